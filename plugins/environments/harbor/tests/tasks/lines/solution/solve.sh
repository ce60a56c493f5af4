#!/bin/bash
grep -c $LEVEL log.txt > /data/count
