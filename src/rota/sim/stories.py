"""Stories as they are stored: every change that a run's durable account may hold, and how to read them back."""

import msgspec

from rota.core import changes as ch

AnyChange = (
    ch.RunSubmitted
    | ch.RunStarted
    | ch.RunEnded
    | ch.RunReopened
    | ch.RunPaused
    | ch.RunStopping
    | ch.RunFaulted
    | ch.RunGrew
    | ch.PendingSet
    | ch.RunArchived
    | ch.TasksScheduled
    | ch.TasksSettled
    | ch.TasksReset
    | ch.TaskRequeued
    | ch.TaskAmended
    | ch.TaskEnded
    | ch.TaskStarved
    | ch.LeaseGranted
    | ch.AttemptStarted
    | ch.AttemptEnded
    | ch.LeaseReturned
    | ch.ReportRefused
)
read_story = msgspec.msgpack.Decoder(list[AnyChange]).decode
