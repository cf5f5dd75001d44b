"""Every metric name that lora_watch reads or writes. No other file spells one."""

# --- read: vLLM (facts: released 0.9.2 … 0.33.0) -------------------------------------------------------------------------------
LORA_REQUESTS_INFO = "vllm:lora_requests_info"  # adapters in flight; value = time stamp; newest series only
REQUESTS_RUNNING = "vllm:num_requests_running"
REQUESTS_WAITING = "vllm:num_requests_waiting"
WAITING_BY_REASON = "vllm:num_requests_waiting_by_reason"  # reason="deferred": the LoRA budget, and KV transfer
KV_CACHE_USAGE = "vllm:kv_cache_usage_perc"
KV_CACHE_USAGE_OLD = "vllm:gpu_cache_usage_perc"  # until 0.10
REQUEST_SUCCESS = "vllm:request_success_total"
PREEMPTIONS = "vllm:num_preemptions_total"
PROMPT_TOKENS = "vllm:prompt_tokens_total"
GENERATION_TOKENS = "vllm:generation_tokens_total"
PREFIX_CACHE_QUERIES = "vllm:prefix_cache_queries_total"
PREFIX_CACHE_HITS = "vllm:prefix_cache_hits_total"
SLEEP_STATE = "vllm:engine_sleep_state"
HISTOGRAMS = (
    "vllm:time_to_first_token_seconds",
    "vllm:e2e_request_latency_seconds",
    "vllm:request_queue_time_seconds",
    "vllm:request_prefill_time_seconds",
    "vllm:request_decode_time_seconds",
)

# --- read and republished: proposed upstream (open pull requests; not in any release) ------------------------------------------
ADAPTER_LOADED = "vllm:lora_adapter_loaded"  # adapter_name, level = gpu | cpu, pinned, rank
GPU_ADAPTERS = "vllm:num_gpu_loaded_lora_adapters"
CPU_ADAPTERS = "vllm:num_cpu_loaded_lora_adapters"
MAX_GPU_ADAPTERS = "vllm:max_gpu_lora_adapters"
LOAD_SECONDS = "vllm:lora_adapter_load_seconds"  # histogram; transition = load (disk → cpu) | activate (cpu → gpu)
CACHE_INFO = "vllm:lora_cache_info"  # the rival proposal, per tier
CACHE_USAGE = "vllm:lora_cache_usage_ratio"
CACHE_ADAPTERS = "vllm:lora_cache_num_adapters"
CACHE_HITS = "vllm:lora_cache_hits_total"
CACHE_LOOKUPS = "vllm:lora_cache_lookups_total"

# --- read: the router (llm-d's Endpoint Picker); a tuple is one metric's names, newest first, the first is stored ------------
# llm_d_router_epp_* stood in development images only; inference_* are the names of GAIE 0.x … 1.5, still exported beside the new
# ones: twins of the same count.
EPP_REQUESTS = (
    "llm_d_epp_request_total",
    "llm_d_router_epp_request_total",
    "inference_objective_request_total",
    "inference_model_request_total",
)
EPP_ERRORS = (
    "llm_d_epp_request_error_total",
    "llm_d_router_epp_request_error_total",
    "inference_objective_request_error_total",
    "inference_model_request_error_total",
)
EPP_RUNNING = (
    "llm_d_epp_request_running",
    "llm_d_router_epp_request_running",
    "inference_objective_running_requests",
    "inference_model_running_requests",
)
EPP_QUEUE = (
    "llm_d_epp_flow_control_queue_size",
    "llm_d_router_epp_flow_control_queue_size",
    "inference_extension_flow_control_queue_size",
)
EPP_ATTEMPTS = (
    "llm_d_epp_scheduler_attempts_total",
    "llm_d_router_epp_scheduler_attempts_total",
    "inference_extension_scheduler_attempts_total",
)
EPP_POD_QUEUE = (
    "llm_d_epp_per_endpoint_queue_size",
    "llm_d_router_epp_per_endpoint_queue_size",
    "inference_pool_per_pod_queue_size",
)
EPP_POD_IN_FLIGHT = ("llm_d_epp_inflight_requests",)
EPP_READY = ("llm_d_epp_ready_endpoints", "llm_d_router_epp_ready_endpoints", "inference_pool_ready_pods")
EPP_POOL_QUEUE = (
    "llm_d_epp_average_queue_size",
    "llm_d_router_epp_average_queue_size",
    "inference_pool_average_queue_size",
)
EPP_POOL_RUNNING = (
    "llm_d_epp_average_running_requests",
    "llm_d_router_epp_average_running_requests",
    "inference_pool_average_running_requests",
)
EPP_POOL_KV_CACHE = (
    "llm_d_epp_average_kv_cache_utilization",
    "llm_d_router_epp_average_kv_cache_utilization",
    "inference_pool_average_kv_cache_utilization",
)

# --- read: dcgm-exporter --------------------------------------------------------------------------------------------------------
GPU_ENGINE_ACTIVE = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"  # 0 … 1: the compute engine was busy, whatever with
GPU_SM_ACTIVE = "DCGM_FI_PROF_SM_ACTIVE"  # 0 … 1; off unless asked for
GPU_TENSOR_ACTIVE = "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"  # 0 … 1; low in decode by nature
GPU_DRAM_ACTIVE = "DCGM_FI_PROF_DRAM_ACTIVE"  # 0 … 1
GPU_UTIL = "DCGM_FI_DEV_GPU_UTIL"  # percent: any kernel ran at all; what dashboards show
GPU_MEMORY_USED = "DCGM_FI_DEV_FB_USED"  # MiB; an engine takes its memory at its start

# --- written: the agent's sidecar ----------------------------------------------------------------------------------------------
AGENT_LOADS = "lora_watch_agent_loads_total"  # tier, from_tier, reason
AGENT_FAILED_LOADS = "lora_watch_agent_failed_loads_total"  # tier, from_tier, reason
AGENT_EVICTIONS = "lora_watch_agent_evictions_total"  # tier, reason
AGENT_USES = "lora_watch_agent_uses_total"  # lookup
AGENT_LOAD_SECONDS = "lora_watch_agent_load_seconds"  # histogram: tier, from_tier
AGENT_STEPS = "lora_watch_agent_steps_total"
AGENT_EXECUTE_SECONDS = "lora_watch_agent_execute_seconds_total"  # clock
AGENT_ADAPTER_SECONDS = "lora_watch_agent_adapter_seconds_total"  # clock
AGENT_REQUESTS = "lora_watch_agent_requests_total"  # finish_reason
AGENT_LOST = "lora_watch_agent_lost_records_total"  # reason
AGENT_LOG_BYTES = "lora_watch_agent_log_bytes"
AGENT_ENGINE_UP = "lora_watch_agent_engine_up"
AGENT_FORGOTTEN = "lora_watch_agent_forgotten_logs_total"

# --- stored as samples beside what was scraped ---------------------------------------------------------------------------------
SAMPLE_SCRAPE_UP = "lora_watch:scrape_up"  # 1 or 0: could this pod's page be read
SAMPLE_CLOCK_OFFSET = "lora_watch:clock_offset_seconds"  # pod's clock − ours
SAMPLE_IN_FLIGHT = "lora_watch:adapter_in_flight"  # from the stock gauge's newest series; provenance activity
SAMPLE_MAX_LORA = "lora_watch:max_lora"  # its label, as a number

# --- written: the exporter -----------------------------------------------------------------------------------------------------
RESIDENCY_SECONDS = "lora_watch_adapter_residency_seconds"
RESIDENCY_STAYS = "lora_watch_adapter_stays"
SWAPS_PER_SECOND = "lora_watch_swaps_per_second"
LOADS_PER_SECOND = "lora_watch_loads_per_second"
ACTIVE_ADAPTERS = "lora_watch_active_adapters"
ACTIVE_PER_SLOT = "lora_watch_active_adapters_per_slot_ratio"
SLOTS = "lora_watch_slots"
RESIDENT_ADAPTERS = "lora_watch_resident_adapters"
OCCUPANCY_RATIO = "lora_watch_slot_occupancy_ratio"
ADAPTER_RESIDENT = "lora_watch_adapter_resident"
ADAPTER_STAY_SECONDS = "lora_watch_adapter_stay_seconds"
ADAPTER_REQUESTS = "lora_watch_adapter_requests"
ADAPTER_LOADS = "lora_watch_adapter_loads"
MISS_RATIO = "lora_watch_request_miss_ratio"
REQUESTS = "lora_watch_requests"
GHOST_HITS = "lora_watch_ghost_hits"
SWAP_QUEUE_DEPTH = "lora_watch_swap_queue_depth"
INFERENCE_SHARE = "lora_watch_inference_share_ratio"
GPU_BUSY = "lora_watch_gpu_busy_ratio"
LITTLE_RESIDUAL = "lora_watch_little_residual_ratio"
SOURCE_LAST_SUCCESS = "lora_watch_source_last_success_timestamp_seconds"
SOURCE_LAG = "lora_watch_source_lag_seconds"
SOURCE_ROWS = "lora_watch_source_rows_total"
SOURCE_LOST = "lora_watch_source_lost_total"
SOURCE_LATE = "lora_watch_source_late_rows_total"
SOURCE_ERRORS = "lora_watch_source_errors_total"
JOB_RUNS = "lora_watch_job_runs_total"  # outcome
JOB_SECONDS = "lora_watch_job_seconds"
JOB_LAST_SUCCESS = "lora_watch_job_last_success_timestamp_seconds"

# --- written: the exporter, by the look for findings: the last ten minutes of each pod ------------------------------------------
RECENT_SWAPS = "lora_watch_recent_swaps_per_second"
RECENT_LOADS = "lora_watch_recent_loads_per_second"
RECENT_COLD_LOADS = "lora_watch_recent_cold_loads_per_second"
RECENT_REQUESTS = "lora_watch_recent_requests_per_second"
RECENT_MISS_RATIO = "lora_watch_recent_miss_ratio"
RECENT_STALL_SHARE = "lora_watch_recent_stall_share_ratio"
RECENT_SWAP_QUEUE = "lora_watch_recent_swap_queue_depth"
RECENT_INFERENCE_SHARE = "lora_watch_recent_inference_share_ratio"  # the upper bound
RECENT_GPU_BUSY = "lora_watch_recent_gpu_busy_ratio"
RECENT_KV_CACHE = "lora_watch_recent_kv_cache_usage_ratio"
RECENT_LOST = "lora_watch_recent_lost_records"

# --- written: the exporter, by the look for findings: each pool, and what is open -----------------------------------------------
POOL_ACTIVE_ADAPTERS = "lora_watch_pool_active_adapters"
POOL_LOAD_SECONDS = "lora_watch_pool_load_seconds"  # phase = disk | copy
POOL_PHANTOM_SLOTS = "lora_watch_pool_phantom_slots"
WORKING_SET = "lora_watch_working_set_adapters"  # seconds
PRESSURE = "lora_watch_working_set_pressure_ratio"
PREDICTED_MISS_RATIO = "lora_watch_predicted_miss_ratio"
NEWMASS = "lora_watch_newmass_ratio"
NEW_ADAPTERS = "lora_watch_new_adapters"
RHO_PEAK = "lora_watch_rho_peak_ratio"
RHO_NOW = "lora_watch_rho_now_ratio"
PEAK_REQUESTS = "lora_watch_peak_requests_per_second"
IN_FLIGHT_PER_SLOT = "lora_watch_in_flight_per_slot_ratio"  # the fullest pod
OPEN_FINDING = "lora_watch_open_finding"  # finding, kind, severity
FINDING_INFO = "lora_watch_finding_info"  # finding, summary, cause, evidence, remedy, explorer

# --- written: recording rules ---------------------------------------------------------------------------------------------------
# level:metric:operations. pod: cluster, pool, role, pod. pool: cluster, pool, role. Rates are per second, over ten minutes.
POD_SLOTS_RECORD = "pod:lora_slots:count"
POD_SWAPS_RECORD = "pod:lora_swaps:rate10m"
POD_LOADS_RECORD = "pod:lora_loads:rate10m"
POD_COLD_LOADS_RECORD = "pod:lora_cold_loads:rate10m"
POD_REQUESTS_RECORD = "pod:lora_requests:rate10m"
POD_MISSES_RECORD = "pod:lora_misses:ratio10m"
POD_LOADING_RECORD = "pod:lora_loading:ratio10m"  # share of pod time in loads
POD_RESIDENCY_RECORD = "pod:lora_residency_seconds:mean10m"  # Little: slots ÷ load rate
POD_SWAP_QUEUE_RECORD = "pod:lora_swap_queue:mean10m"
POD_INFERENCE_RECORD = "pod:lora_inference_share:ratio10m"
POD_GPU_BUSY_RECORD = "pod:lora_gpu_busy:ratio10m"
POD_KV_CACHE_RECORD = "pod:lora_kv_cache_usage:mean10m"
POD_SERVICE_RECORD = "pod:lora_service_seconds:mean10m"
POD_QUEUED_REQUESTS_RECORD = "pod:lora_queued_requests:rate10m"  # only while a queue stood
ADAPTER_REQUESTS_RECORD = "pool_adapter:lora_requests:rate10m"  # adapter
ADAPTER_SEEN_RECORD = "pool_adapter:lora_last_seen:timestamp_seconds"  # adapter
POOL_PODS_RECORD = "pool:lora_pods:count"
POOL_SLOTS_RECORD = "pool:lora_slots:sum"
POOL_SWAPS_RECORD = "pool:lora_swaps_per_pod:rate10m"
POOL_LOADS_RECORD = "pool:lora_loads_per_pod:rate10m"
POOL_COLD_RECORD = "pool:lora_cold_loads:ratio1h"  # of the loads
POOL_REQUESTS_RECORD = "pool:lora_requests:rate10m"
POOL_MISSES_RECORD = "pool:lora_misses:ratio10m"
POOL_LOADING_RECORD = "pool:lora_loading:ratio10m"
POOL_RESIDENCY_RECORD = "pool:lora_residency_seconds:mean10m"
POOL_SWAP_QUEUE_RECORD = "pool:lora_swap_queue:sum10m"
POOL_INFERENCE_RECORD = "pool:lora_inference_share:ratio10m"
POOL_GPU_BUSY_RECORD = "pool:lora_gpu_busy:ratio10m"
POOL_NOT_INFERRING_RECORD = "pool:lora_busy_not_inferring:ratio10m"
POOL_KV_CACHE_RECORD = "pool:lora_kv_cache_usage:max10m"
POOL_ACTIVE_RECORD = "pool:lora_active_adapters:count1h"
POOL_ACTIVE_PER_SLOT_RECORD = "pool:lora_active_per_slot:ratio1h"
POOL_WORKING_SET_RECORD = "pool:lora_working_set:adapters"  # seconds
POOL_WORKING_SET_LOADS_RECORD = "pool:lora_working_set_loads:rate"  # seconds
POOL_PRESSURE_RECORD = "pool:lora_working_set_pressure:ratio"
POOL_PREDICTED_RECORD = "pool:lora_predicted_misses:ratio"
POOL_NEWMASS_RECORD = "pool:lora_newmass:ratio"
POD_IN_FLIGHT_RECORD = "pod:lora_in_flight_per_slot:ratio"
POOL_IN_FLIGHT_RECORD = "pool:lora_in_flight_per_slot:ratio"  # the fullest pod
POOL_CAPACITY_RECORD = "pool:lora_capacity_per_pod:rate7d"
POOL_PEAK_RECORD = "pool:lora_peak_requests:rate8h"
POOL_RHO_PEAK_RECORD = "pool:lora_rho_peak:ratio"
POOL_SATURATION_RECORD = "pool:lora_saturation:ratio"  # now; what an autoscaler should look at
POOL_LOAD_SECONDS_RECORD = "pool_phase:lora_load_seconds:mean10m"  # phase
POOL_SLOWDOWN_RECORD = "pool_phase:lora_load_slowdown:ratio"  # phase
POOL_PHANTOM_RECORD = "pool:lora_phantom_slots:sum"
POOL_BLIND_PODS_RECORD = "pool:lora_blind_pods:count"
POOL_LOST_RECORD = "pool:lora_lost_records:increase10m"
WATCH_SILENT_RECORD = "watch:lora_silent:bool"
WATCH_LAG_RECORD = "watch:lora_lag_seconds:max"
WATCH_LOOKS_RECORD = "watch:lora_looks:increase10m"

# --- written: Prometheus itself, from alerting rules ---------------------------------------------------------------------------
ALERTS = "ALERTS"  # alertname, alertstate, and the labels of the alert
