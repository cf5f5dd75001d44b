"""
Grafana's boards and provisioning as values, rendered into ``grafana/`` by ``make render``.

Rendering is a developer's act: what it writes is committed and shipped, so the service does not depend on the SDK.
"""
