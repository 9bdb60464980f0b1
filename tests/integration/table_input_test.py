#!/usr/bin/env python3
"""Catches: a table that is written otherwise (decimal comma, thousands, line ends, Excel's first line,
columns without a name) and trains other weights than the plain one, and a column with as many values
as rows that is not reported, or no error with `strict`. Also a resumed run that takes other words for
missing values than it began with.

table_input_test.py BINARY
"""
import pathlib
import random
import sys
import tempfile

import lockstep_run

CONFIG = """
model {{ mlp {{ hidden: [4] }} }}
data {{ table {{ train: "{file}" {table} }} {data} }}
train {{ global_batch: 16 lanes: 2 steps: 4 }}
optimizer {{ adamw {{}} }}
schedule {{ lr: 0.01 }}
output {{ tensorboard: false }}
"""


def rows_of(count):
    draw = random.Random(1)
    return [(round(draw.gauss(0, 1), 4), draw.randrange(1000, 9_000_000), draw.choice("ab"))
            for _ in range(count)]


def main():
    binary = sys.argv[1]
    rows = rows_of(80)

    def lines(row, header, end="\n"):
        return header + end + "".join(row(*r) + end for r in rows)

    def comma(number):
        return str(number).replace(".", ",")

    def grouped(number, mark):
        return f"{number:,}".replace(",", mark)

    plain = lines(lambda x, n, y: f"{x},{n},{y}", "x,n,größe")
    files = {  # text, and what the config says of it
        "plain.csv": (plain, 'target: "größe"'),
        "old_mac.csv": (plain.replace("\n", "\r"), 'target: "größe"'),
        "decomposed.csv": (plain.replace("ö", "o\u0308"), 'target: "größe"'),
        "thousands.csv": (lines(lambda x, n, y: f'{x},"{n:,}",{y}', "x,n,y"),
                          'target: "y" thousands: ","'),
        "german.csv": (lines(lambda x, n, y: f"{comma(x)};{grouped(n, '.')};{y}", "sep=;\r\nx;n;y",
                             "\r\n"),
                       'target: "y" delimiter: ";" decimal: "," thousands: "."'),
        "french.csv": (lines(lambda x, n, y: f"{comma(x)};{grouped(n, chr(0xA0))};{y}", "x;n;y"),
                       'target: "2" delimiter: ";" decimal: "," thousands: "\\u00A0"'),
        "index.csv": ("".join(f"{'' if i == 0 else i - 1},{line},\n"
                              for i, line in enumerate(plain.splitlines())),
                      'target: "größe" ignore: ""'),
    }
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)

        def train(name, table, data=""):
            (folder / "c.textproto").write_text(CONFIG.format(file=name, table=table, data=data))
            run_dir = f"runs/{len(list(folder.glob('runs/*')))}"
            return lockstep_run.run(
                binary, ["train", "c.textproto", "--data", ".", "--run-dir", run_dir], ranks=0,
                cwd=folder)

        hashes = {}
        for name, (text, table) in files.items():
            (folder / name).write_bytes(text.encode())
            run = train(name, table, "strict: true")
            assert run.returncode == 0, f"{name}: {run.stderr}"
            hashes[name] = next(l for l in (run.stdout + run.stderr).splitlines()
                                if l.startswith("weights_hash"))
        assert len(set(hashes.values())) == 1, hashes
        # Without the marks each number is a category; the remedy is the one used above.
        for data, code in (("", 0), ("strict: true", 3)):
            run = train("german.csv", 'target: "y" delimiter: ";"', data)
            assert run.returncode == code, run.stderr
            assert 'column \'x\' has 80 different values in 80 rows' in run.stderr, run.stderr
            assert 'set data.table.decimal: ","' in run.stderr, run.stderr
        # The last config has `strict`, which `data inspect` honours after its report.
        found = lockstep_run.run(binary, ["data", "inspect", "c.textproto", "--data", "."], ranks=0,
                                 cwd=folder)
        assert found.returncode == 3, found.stderr
        assert "training: 80 samples" in found.stdout and "because of data.strict" in found.stderr
        # A run with the former words for a missing value keeps them, although the config has none.
        (folder / "words.csv").write_text(
            "x,y\n" + "".join(f"{'None' if i % 5 == 0 else x},{y}\n"
                             for i, (x, _, y) in enumerate(rows)))
        former = 'missing: ["", "?", "NA", "NaN", "nan"]'

        def end_of(table, *more):
            text = CONFIG.format(file="words.csv", table=f'target: "y" {table}', data="")
            (folder / "c.textproto").write_text(text)
            run = lockstep_run.run(binary, ["train", "c.textproto", "--data", ".", *more], ranks=0,
                                   cwd=folder)
            assert run.returncode == 0, run.stderr
            return next(l for l in (run.stdout + run.stderr).splitlines()
                        if l.startswith("weights_hash"))

        whole = end_of(former, "--run-dir", "whole")
        end_of(former, "--run-dir", "old", "--max-steps", "2")
        assert end_of("", "--run-dir", "old", "--resume", "auto") == whole
        assert end_of("", "--run-dir", "new") != whole
    print("tables: the same weights from", ", ".join(hashes))


if __name__ == "__main__":
    main()
