#!/usr/bin/env python3
"""Opens Lockstep's event files with TensorBoard's own reader.

Usage: check_tensorboard.py TENSORBOARD_TOOL. Exit status 77: TensorBoard is not installed here.
"""

import subprocess
import sys
import tempfile

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import metadata
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)


def main():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.argv[1], folder], check=True)
        events = EventAccumulator(folder)
        events.Reload()
        tags = set(events.Tags()["scalars"])
        expected = {"train/loss", "train/lr", "train/grad_norm", "throughput/samples_per_s",
                    "throughput/tokens_per_s", "time/step_ms", "time/compute_ms",
                    "time/comm_exposed_ms", "time/straggler_ms", "time/data_wait_ms",
                    "time/optimizer_ms", "eval/loss", "eval/accuracy"}
        assert tags == expected, tags ^ expected
        # Steps after the checkpoint are the resumed process's; those of the first process are
        # hidden.
        loss = {event.step: event.value for event in events.Scalars("train/loss")}
        assert sorted(loss) == list(range(1, 31)), loss
        for step, value in loss.items():
            wanted = 1 / step + (10 if step <= 20 else 0)
            assert abs(value - wanted) < 1e-5, (step, value)
        assert [(e.step, e.value) for e in events.Scalars("eval/loss")] == [(22, 0.25), (30, 0.25)]
        assert ([(e.step, e.value) for e in events.Scalars("eval/accuracy")]
                == [(22, 0.75), (30, 0.75)])
        assert {e.value for e in events.Scalars("throughput/tokens_per_s")} == {1000}
        # The config of each process, as Markdown code.
        texts = [(e.step, e.tensor_proto.string_val) for e in events.Tensors("config")]
        lines = ['    name: "a run"', *["    hidden: 16"] * 1000]
        text = "\n".join(lines).encode() + b"\n"
        assert texts == [(0, [text]), (20, [text])], [(step, len(t[0])) for step, t in texts]
        assert events.SummaryMetadata("config").plugin_data.plugin_name == "text"

        def hparams(tag):
            return events.SummaryMetadata(tag).plugin_data.content

        start = metadata.parse_session_start_info_plugin_data(hparams("_hparams_/session_start_info"))
        found = {name: (value.number_value, value.string_value)
                 for name, value in start.hparams.items()}
        assert found == {"schedule.lr": (0.5, ""), "optimizer": (0, "adamw")}, found
        experiment = metadata.parse_experiment_plugin_data(hparams("_hparams_/experiment"))
        assert [info.name for info in experiment.hparam_infos] == ["schedule.lr", "optimizer"]
        compared = {info.name.tag for info in experiment.metric_infos}
        assert compared == {"train/loss", "eval/loss", "eval/accuracy", "throughput/samples_per_s"}
        end = metadata.parse_session_end_info_plugin_data(hparams("_hparams_/session_end_info"))
        assert end.status == 1 and end.end_time_secs >= start.start_time_secs > 1e9, end
    print("tensorboard: event files are as they should be")


if __name__ == "__main__":
    main()
