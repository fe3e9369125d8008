"""Contract suites: one set of promises, kept by every adapter of a port."""

import pytest

# The promises live outside test modules, and a broken one should still show the values it compared.
pytest.register_assert_rewrite(
    "tests.contract.store_rows", "tests.contract.store_history", "tests.contract.store_reigns", "tests.contract.bench"
)
