"""What schemathesis is told about made-up requests before it sends them (`SCHEMATHESIS_HOOKS`)."""

from typing import Any

import schemathesis


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """A log that is followed goes on as long as its attempt, and where nobody works none ever begins."""
    del context, kwargs
    if case.query and str(case.query.get("follow")).lower() in ("true", "1"):
        case.query["follow"] = "false"
