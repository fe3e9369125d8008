"""`python -m rota`: the same as the `rota` command."""

import sys

from rota.cli import main

sys.exit(main())
