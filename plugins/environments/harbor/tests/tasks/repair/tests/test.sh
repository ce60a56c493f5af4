#!/bin/bash
python3 /tests/check.py && reward=1 || reward=0
echo "{\"reward\": $reward, \"files\": $(ls /app/*.py | wc -l)}" > /logs/verifier/reward.json
