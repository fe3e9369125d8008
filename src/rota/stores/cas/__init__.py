"""Content of builds and results of their actions: what a front end keeps. See decision 0014."""

from rota.stores.cas.content import ContentBounds, DiskContent
from rota.stores.cas.opening import open_content
from rota.stores.cas.results import DiskResults, open_results

__all__ = ["ContentBounds", "DiskContent", "DiskResults", "open_content", "open_results"]
