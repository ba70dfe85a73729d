#!/bin/bash
export PYTHONPATH=$PWD:/root/n/l24/extra OMP_NUM_THREADS=1 PATH=/work/main/.venv/bin:$PATH
exec python lesson_code/deployment/study_extras.py --save
