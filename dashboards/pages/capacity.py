"""Capacity: what if there were more slots, pods, pins, or another router?"""

from datetime import UTC, datetime, timedelta

import polars as pl
import streamlit as st

from lora_watch.derive.groups import POOL, of_pool
from lora_watch.explore import capacity_figures, capacity_words
from lora_watch.explore.capacity import Pool, Room, month_of, slots_of
from lora_watch.explore.extent import LOOKED_AT, adapters_of
from lora_watch.explore.markup import badge, shown
from lora_watch.explore.panels import pool_title
from lora_watch.explore.routing import routed
from lora_watch.model import MINUTE, SECOND, Window
from lora_watch.recommend.levers import ROUTERS, Levers, Plan
from widgets import advice, charts, notes, questions, scene, tables
from widgets.address import Address

AS_NOW = "as now"
SLIDERS = {"slots": 8, "pods": 8, "pins": 20, "variants": 30}
"""What can be added, and how much of it."""
page = scene.scene()
view, window = page.view, page.window
address = Address(view)


def curves(told: Room, pool: Pool, slots: dict[str, int], plan: tuple[int, float] | None) -> None:
    left, right = st.columns(2, gap="large")
    curve, wanted = told.curve.filter(of_pool(pool)), told.wanted.filter(of_pool(pool))
    with left:
        notes.heading("Misses by slots per pod", level=4)
        if curve.is_empty():
            notes.nothing("No request for an adapter is stored of this hour: there is no curve.")
        else:
            now = (min(slots.values()), max(slots.values())) if slots else (1, 1)
            charts.chart("curve", capacity_figures.miss_ratio_curve(curve, now, plan), "LRU misses by slots per pod")
            first = curve["first_uses"][0] / max(curve["requests"][0], 1)
            notes.plain(
                badge(curve["provenance"][0]),
                f" Exact curve (error class: {curve['error_class'][0]}): every pod's own requests as they were routed, LRU. "
                f"{first:.1%} of the requests were first uses, which miss at any number of slots.",
            )
            with st.expander("The numbers"):
                tables.table("miss_ratio_curve", curve, capacity_words.CURVE)
    with right:
        notes.heading("How many adapters are wanted within a time", level=4)
        if wanted.is_empty():
            notes.nothing("No request for an adapter is stored of this hour.")
        else:
            total = sum(slots.values()) if slots else None
            charts.chart("working_set", capacity_figures.working_set(wanted, total), "Adapters asked for within T seconds")
            notes.plain(
                badge(wanted["provenance"][0]),
                " W(T), exact: where it is above the slots, adapters are evicted before they are asked for again after T.",
            )
            with st.expander("The numbers"):
                tables.table("working_set", wanted, capacity_words.WANTED)


def wished(levers: Levers | None, slots: dict[str, int]) -> Plan:
    present = None if levers is None else levers.router
    columns = st.columns(5, gap="medium")
    for name, most in SLIDERS.items():
        address.number(name, f"lw_plan_{name}", 0, most)
    address.choice("router", "lw_plan_router", [AS_NOW, *ROUTERS])
    router = columns[2].selectbox("Routing", [AS_NOW, *ROUTERS], key="lw_plan_router", disabled=len(slots) < 2)
    chosen = None if router == AS_NOW else router
    fixed = len(slots) < 2 or (present is None and chosen is None)
    pods = columns[1].slider("More pods", 0, SLIDERS["pods"], key="lw_plan_pods", disabled=fixed)
    plan = Plan(
        slots=columns[0].slider("More slots per pod", 0, SLIDERS["slots"], key="lw_plan_slots"),
        pods=0 if fixed else pods,
        pins=columns[3].slider("Pins, most asked for first", 0, SLIDERS["pins"], key="lw_plan_pins"),
        router=chosen,
        variants=columns[4].slider("More adapters (A/B test)", 0, SLIDERS["variants"], key="lw_plan_variants"),
    )
    for name in SLIDERS:
        if value := getattr(plan, name):
            address.keep(name, str(value))
    if chosen is not None:
        address.keep("router", chosen)
    if levers is None:  # whether there may be more pods is not known yet
        address.leave("pods")
    return plan


def routing(pool: Pool, slots: dict[str, int]) -> None:
    notes.heading("Routing: where a request would have gone")
    part = page.last(LOOKED_AT)
    names = page.later("asked_for", adapters_of, page.store, part, window=part, of="adapters") or []
    names = list(dict.fromkeys([*view.adapter, *names]))
    if not names or not slots:
        notes.nothing("No adapter was asked for in the end of this window, or no pod's slots are known.")
        address.leave("adapter", "at")
        return
    first, last = (at // SECOND for at in (window.start, window.end - 1))
    left, right = st.columns(2, gap="medium")
    address.choice("adapter", "lw_routing_adapter", names)
    adapter = left.selectbox("Adapter", names, format_func=shown, key="lw_routing_adapter")
    at = last
    if last > first:
        moments = [
            datetime.fromtimestamp(one, UTC).replace(tzinfo=None) for one in (first, max(last - MINUTE // SECOND, first), last)
        ]
        key = f"lw_moment_{view.digest}"
        asked = address.number("at", None, first, last)
        if key not in st.session_state or address.anew:
            st.session_state[key] = moments[1] if asked is None else datetime.fromtimestamp(asked, UTC).replace(tzinfo=None)
        chosen = right.slider(
            "Moment (UTC)", moments[0], moments[2], format="YYYY-MM-DD HH:mm:ss", step=timedelta(seconds=1), key=key
        )
        if chosen != moments[1]:
            address.keep("at", str(round(chosen.replace(tzinfo=UTC).timestamp())))
        at = round(chosen.replace(tzinfo=UTC).timestamp())
    if adapter != names[0]:
        address.keep("adapter", adapter)
    moment = Window(at * SECOND, (at + 1) * SECOND)  # whatever the window's length
    given = (page.store, pool, slots, adapter, moment.start, page.lookback)
    told = page.later("routed", routed, *given, key=(pool, adapter), window=moment, of="scores")
    if told is None:
        return
    tables.table("routing", told.pods, capacity_words.ROUTED)
    notes.plain(capacity_words.stood(told))


told = page.told(questions.curves(page))
if told is not None:
    keys = list(dict.fromkeys([*told.pods.select(POOL).iter_rows(), *told.curve.select(POOL).iter_rows()]))
    if not keys:
        notes.nothing("No pod was seen in the last hour of this window.")
        st.stop()
    pool = keys[0]
    if len(keys) > 1:
        pool = st.selectbox("Pool", keys, format_func=lambda key: shown(pool_title(*key)), key="lw_capacity_pool")
    slots = slots_of(told, pool)
    unknown = told.pods.filter(of_pool(pool) & pl.col("slots").is_null()).height
    notes.heading("What if")
    notes.plain(capacity_words.replayed(told.window, slots, unknown))
    levers = page.told(questions.levers(page, pool, slots))
    plan = wished(levers, slots)
    point = None
    if levers is not None:
        if not slots:
            notes.nothing("No pod's slots are known, so nothing can be replayed: an agent, or the engine's own page, tells them.")
        else:
            future = page.told(questions.plan(page, pool, slots, plan, levers.router))
            if future is not None:
                cost = page.settings.cost
                month = (month_of(future.base_pods, cost), month_of(future.pods, cost))
                sizes = told.sizes.filter(of_pool(pool))["bytes"].to_list()
                st.html(capacity_words.tiles(plan, future, month, cost.currency, sizes[0] if sizes else None))
                notes.plain(
                    badge(future.provenance),
                    f" {capacity_words.plan_of(plan)[:1].upper()}{capacity_words.plan_of(plan)[1:]}. ",
                    capacity_words.method(future, plan, levers.router),
                )
                if plan != Plan() and future.requests:
                    point = (max(slots.values()) + plan.slots, future.loads / future.requests)
    curves(told, pool, slots, point)
    if levers is not None:
        notes.heading("Each lever by itself")
        if levers.levers:
            who = (
                f"{levers.router}: its loads come nearest to the recorded ones"
                if levers.router
                else "none: pods as they were recorded"
            )
            notes.plain(badge(levers.provenance), f" Replay, beside a replay of the present. Router in the loop: {who}.")
            if caution := capacity_words.crowded(levers):
                notes.plain(caution)
            tables.table("levers", capacity_words.lever_rows(levers), capacity_words.LEVERS)
        else:
            notes.plain("Too few loads in this hour for any lever to be told from chance.")
    advice.show(page, "What the last week proves", pool=pool)
    routing(pool, slots)
    address.write()
