// Catches table mistakes that pass silently or are explained badly.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "files.h"
#include "runtime/data/tables/table.h"

namespace lockstep::data {
namespace {

struct Case {
  std::string what;
  std::string train;
  std::string eval;
  std::vector<std::string> parts;
  TableConfig table;
  config::ModelTraits model = test::mlp();
  ExitCode code = ExitCode::kData;
};

TableConfig target(const std::string& name) {
  TableConfig table;
  table.target = name;
  return table;
}

std::vector<Case> cases() {
  TableConfig both = target("y");
  both.categorical = {"x"};
  both.ignore = {"x"};
  TableConfig none = target("y");
  none.ignore = {"x"};
  TableConfig wide = target("y");
  wide.delimiter = ", ";
  TableConfig numbered = target("7");
  numbered.header = false;
  TableConfig split = target("y");
  split.eval_fraction = 0.99f;
  const config::ModelTraits binary = test::mlp(Loss::kBinaryCrossEntropy),
                            regression = test::mlp(Loss::kMeanSquaredError);
  const std::string good = "x,y\n1,a\n2,b\n";
  return {
      {"empty", "\n\n", "", {"train.csv: has no records"}, target("y"), {}},
      {"header only", "x,y\n", "", {"train.csv: has no records"}, target("y"), {}},
      {"no such column",
       good,
       "",
       {"has no column 'z' (data.table.target)", "'x', 'y'"},
       target("z"),
       {}},
      {"no such number", "1,2\n", "", {"has no column '7'", "'0', '1'"}, numbered, {}},
      {"two columns of a name",
       "y,x,y\n1,2,3\n",
       "",
       {"columns 0 and 2 (from 0) of the header are both named 'y'"},
       target("y"),
       {}},
      {"named twice", good, "", {"'x'", "categorical", "ignore"}, both, {}, ExitCode::kUsage},
      {"nothing left", good, "", {"no input column is left"}, none, {}},
      {"long delimiter", good, "", {"data.table.delimiter is ', '"}, wide, {}, ExitCode::kUsage},
      {"UTF-16", "\xFF\xFEx", "", {"UTF-16"}, target("y"), {}},
      {"unclosed quote",
       good + "3,\"c\n4,d\n",
       "",
       {"train.csv:4: a quote is never closed"},
       target("y"),
       {}},
      {"text after quote",
       good + "\"3\"3,a\n",
       "",
       {"train.csv:4: text follows the closing quote of field 1"},
       target("y"),
       {}},
      {"fields", good + "3\n", "", {"train.csv:4: has 1 fields, expected 2"}, target("y"), {}},
      {"missing target",
       good + "3,?\n",
       "",
       {"train.csv:4: the target column 'y' is '?', which marks a missing value",
        "if it is a class"},
       target("y"),
       {}},
      {"empty target", good + "3,\n", "", {"the target column 'y' has no value"}, target("y"), {}},
      {"text as value",
       good,
       "",
       {"train.csv:2: column 'y': 'a' is not a number"},
       target("y"),
       regression},
      {"word as value",
       "x,y\n1,yes\n",
       "",
       {"'yes' is not a number", "loss to SOFTMAX_CROSS_ENTROPY"},
       target("y"),
       regression},
      {"three names",
       good + "3,c\n",
       "",
       {"3 different values ('a', 'b', 'c')",
        "two, or numbers in [0, 1]; for more classes, set model.mlp.loss: SOFTMAX_CROSS_ENTROPY"},
       target("y"),
       binary},
      {"one name", "x,y\n1,a\n2,a\n", "", {"has one value ('a')"}, target("y"), binary},
      {"names that differ in case",
       good + "3,B\n",
       "",
       {"'b' differs from 'B' only in case"},
       target("y"),
       binary},
      {"probability above 1",
       "x,y\n1,0\n2,1\n3,1.5\n",
       "",
       {"3 different values"},
       target("y"),
       binary},
      {"probability in eval",
       "x,y\n1,0\n2,1\n",
       "x,y\n1,2\n",
       {"eval.csv:2", "'2' is not a number in [0, 1]"},
       target("y"),
       binary},
      {"outputs",
       good + "3,c\n",
       "",
       {"has 3 classes", "model.mlp.outputs is 2"},
       target("y"),
       test::mlp(Loss::kSoftmaxCrossEntropy, 2)},
      {"one target",
       "x,y\n1,2\n",
       "",
       {"has 1 target", "model.mlp.outputs is 4"},
       target("y"),
       test::mlp(Loss::kMeanSquaredError, 4)},
      {"other header",
       good,
       "x,z\n1,a\n",
       {"eval.csv: column 1 of the header is 'z'", "it is 'y'"},
       target("y"),
       {}},
      {"shorter header",
       good,
       "x\n1\n",
       {"eval.csv: the header has 1 columns, expected 2"},
       target("y"),
       {}},
      {"word in a numeric column",
       good,
       "x,y\nw,a\n",
       {"eval.csv:2: column 'x': 'w' is not a number", "missing value, set data.table.missing"},
       target("y"),
       {}},
      {"all held out",
       "x,y\n1,a\n",
       "",
       {"data.table.eval_fraction of 0.99 holds out all"},
       split,
       {}},
  };
}

TEST(TableErrors, NameFilePlaceAndRemedy) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.what);
    const TableText train{c.train, "train.csv"}, eval{c.eval, "eval.csv"};
    const std::string message = test::error_of(
        [&] {
          make_table(train,
                     c.eval.empty() ? nullptr : &eval,
                     DataConfig{},
                     c.table,
                     c.model,
                     TableUse::kTraining);
        },
        c.code);
    test::expect_parts(message, c.parts);
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

TEST(TableErrors, AnUnclosedQuoteFailsWhateverThePolicy) {
  // Skipping it would silently drop the rest of the file.
  DataConfig config;
  config.bad_records = BadRecords::kSkip;
  config.max_bad_fraction = 1;
  const TableText train{"x,y\n1,a\n2,\"b\n3,a\n", "train.csv"};
  test::expect_parts(test::error_of([&] {
                       make_table(train, nullptr, config, target("y"), {}, TableUse::kTraining);
                     }),
                     {"train.csv:3: a quote is never closed"});
}

TEST(TableErrors, AllRecordsBad) {
  DataConfig config;
  config.bad_records = BadRecords::kSkip;
  config.max_bad_fraction = 1;
  const TableText train{"x,y\n1\n2\n", "train.csv"};
  test::expect_parts(test::error_of([&] {
                       make_table(train, nullptr, config, target("y"), {}, TableUse::kTraining);
                     }),
                     {"train.csv: has no good records for training"});
}

}  // namespace
}  // namespace lockstep::data
