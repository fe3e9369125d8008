"""Have words counted by whoever can: python examples/agent/ask.py "the quick brown fox" """

import os
import sys

import rota

if __name__ == "__main__":
    with rota.connect(os.environ.get("ROTA_COORDINATOR", "grpc://127.0.0.1:7433")) as client:
        item = client.submit_work("count the words", {"text": " ".join(sys.argv[1:])}, requires=["count"])
        print(f"{item.id}: {item.result(timeout_s=300)}")
