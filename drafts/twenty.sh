cd /root/n/wt_l20c
for i in $(seq 20); do for k in nodes dask checkpoints; do
/root/n/do timeout 200 /work/main/.venv/bin/python /root/n/tmp_20c/once.py $k 2>&1 | tail -1 | sed "s/^/$i /"
done; done
echo two at once
for i in 1 2 3; do for k in nodes dask checkpoints; do
/root/n/do bash -c "for j in 1 2; do timeout 250 /work/main/.venv/bin/python /root/n/tmp_20c/once.py $k 2>&1 | tail -1 & done; wait"
done; done
echo left: $(pgrep -fc "lesson_code.sharding|course_utils/processes/ranks.py")
