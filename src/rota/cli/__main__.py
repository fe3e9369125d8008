"""`python -m rota.cli` is `rota`."""

import sys

from rota.cli import main

sys.exit(main())
