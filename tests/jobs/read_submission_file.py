"""What HTCondor makes of a submission file: the job, as JSON. A file that it refuses ends this with its message."""

import json
import sys
import warnings

warnings.simplefilter("ignore")  # there is no pool here, and no configuration of one
import classad
import htcondor

with open(sys.argv[1]) as file:
    submit = htcondor.Submit(file.read())
jobs = list(submit.jobs(count=1, clusterid=7))
assert len(jobs) == 1, f"{len(jobs)} jobs"


def plain(value):
    return str(value) if isinstance(value, (classad.ExprTree, classad.Value)) else value


print(json.dumps({name: plain(jobs[0][name]) for name in jobs[0].keys()}))
