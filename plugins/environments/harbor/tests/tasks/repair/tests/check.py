import sys

sys.path.insert(0, "/app")
from shop import total

assert total([1, 2, 3]) == 6
