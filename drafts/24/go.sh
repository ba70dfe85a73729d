#!/bin/bash
# build the notebook, format it
cd /root/n/wt_l24 && /work/main/.venv/bin/python /root/n/l24/build.py && /work/main/.venv/bin/ruff format -q notebooks/24_deployment.ipynb && /work/main/.venv/bin/ruff check notebooks/24_deployment.ipynb
