"""The commands, with what ``jrs --help`` says of each: none of their modules is imported for it."""

from __future__ import annotations

import attrs


@attrs.frozen
class Command:
    """One command: its module, which has a function ``<name>_command``, and its summary."""

    module: str
    summary: str


SECTIONS = {
    "Run jobs": {
        "submit": Command("jobs", "Submit a job, durably."),
        "wait": Command("jobs", "Wait for a job's result, and print its payload as JSON."),
        "cancel": Command("jobs", "Cancel a job, or an application with its jobs."),
        "retry": Command("retry", "Run a failed or canceled job again, as a new job."),
        "sign": Command("jobs", "Sign a stored job, for masters that demand signatures."),
    },
    "Inspect": {
        "top": Command("top", "Show who leads, what runs and what needs attention, live."),
        "list": Command("reading", "List jobs: submitted, running and ended."),
        "show": Command("show", "Show a job: its attempts, stages, streams and result."),
        "explain": Command("reading", "Explain what a leader does with a job now, and why."),
        "history": Command("history", "Show what happened to a job: when, who did it, and why."),
        "logs": Command("logs", "Print the logs of a job's attempt."),
        "files": Command("files", "Print the files of a stage's output, one per line."),
        "masters": Command("reading", "List the masters, and show which one leads."),
        "serve": Command("serve", "Serve the API and the page of a cluster."),
        "open": Command("open", "Print a link that logs a browser in to the page."),
    },
    "Change a job": {
        "suspend": Command("suspend", "Suspend a job at a batch boundary."),
        "resume": Command("suspend", "Resume a suspended job, or try a held one again."),
        "drain": Command("suspend", "Finish a stream: process its input, flush its state."),
        "rescale": Command("changing", "Change the number of partitions of a stream's state."),
        "upgrade": Command("changing", "Replace a job's code, and resume with the new code."),
        "fork": Command("changing", "Start a new job from the current state of a job."),
        "snapshot": Command("snapshots", "Create, list, verify, move and restore snapshots."),
        "stop": Command("suspend", "Deprecated: use 'jrs suspend' or 'jrs drain'."),
    },
    "Run the cluster": {
        "master": Command("master", "Start a master: it stands by, or leads and runs jobs."),
        "switchover": Command("pause", "Have the leader hand over to another master."),
        "pause": Command("pause", "Pause the cluster: no attempt begins."),
        "unpause": Command("pause", "End a pause: jobs start again."),
        "storage": Command("upkeep", "Show or change the storage that the cluster uses."),
        "migrate": Command("migrate", "Move a paused cluster to another backend."),
        "cluster-format": Command("upkeep", "Show or raise the format of the cluster's records."),
    },
    "Keep it healthy": {
        "doctor": Command("doctor", "Check whether a backend, and Spark, are fit for use."),
        "fsck": Command("upkeep", "Check the cluster for damage, left-overs and held jobs."),
        "cleanup": Command("upkeep", "Retry, preview or skip the cleanup of an ended job."),
        "expire": Command("upkeep", "Delete the clean results of given jobs, or all old ones."),
        "gc": Command("upkeep", "Remove files that are no longer needed."),
    },
    "Set up and try": {
        "init": Command("config", "Write a commented jrs.toml."),
        "config": Command("config", "Show the settings, and where each comes from."),
        "prepare": Command("prepare", "Make Spark start faster on this host."),
        "demo": Command("demo", "Run PySpark jobs on three masters, and kill leaders."),
        "chaos": Command("chaos", "Test whether jobs survive faults."),
    },
}  # fmt: skip
"""The commands by what they are for, in the order of ``jrs --help``."""

COMMANDS = {name: command for section in SECTIONS.values() for name, command in section.items()}
