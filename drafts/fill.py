"""Sentences of the study, for the build: writes said.json"""
import json,sys
from lesson_code.profiling import test_profiling as t
from course_utils.results import STUDIES, read_file
study=read_file(STUDIES/"profiling/study.json")
json.dump({k:list(f(study)) for k,f in t.SAID.items()},open("/root/n/p19a/said.json","w"),indent=1,ensure_ascii=False)
print(open("/root/n/p19a/said.json").read())
