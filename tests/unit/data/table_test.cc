// Catches wrong features, statistics that see evaluation rows, wrong class numbers, and bad-record
// policies that lose or invent samples.

#include "runtime/data/tables/table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "files.h"
#include "runtime/data/tables/table_encoder.h"

namespace lockstep::data {
namespace {

using test::error_of;
using test::expect_parts;
using Floats = std::vector<float>;

struct Table {
  std::string train;
  std::string eval;
  DataConfig config;
  TableConfig table;
  config::ModelTraits model = test::mlp();

  OpenedData open(TableUse use = TableUse::kTraining) const {
    const TableText train_text{train, "train.csv"}, eval_text{eval, "eval.csv"};
    return make_table(train_text, eval.empty() ? nullptr : &eval_text, config, table, model, use);
  }
};

Table table_of(const std::string& train,
               const std::string& target,
               Loss loss = Loss::kSoftmaxCrossEntropy) {
  Table t;
  t.train = train;
  t.table.target = target;
  t.model.loss = loss;
  return t;
}

Floats features(const Dataset& dataset, int64_t index) {
  return dataset.target().dtype == DType::kI32
             ? test::read<float, int32_t>(dataset, {.index = index}).input
             : test::read<float, float>(dataset, {.index = index}).input;
}
int32_t label(const Dataset& dataset, int64_t index) {
  return test::read<float, int32_t>(dataset, {.index = index}).target[0];
}
float value(const Dataset& dataset, int64_t index) {
  return test::read<float, float>(dataset, {.index = index}).target[0];
}

void expect_near(const Floats& actual, const Floats& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  // One rounding to float32 of a double result; literals have five digits.
  for (size_t i = 0; i < actual.size(); ++i)
    EXPECT_NEAR(actual[i], expected[i], 1e-5) << "feature " << i;
}

TEST(Table, StandardisesAndOneHotEncodes) {
  // age: mean 4, deviation 2. colour: sorted blue, red; then the slot for others.
  const Table t =
      table_of("age,colour,y\n2,red,b\n6,blue,a\n4,red,b\n2,red,b\n6,blue,a\n4,red,c\n", "y");
  const OpenedData opened = t.open();
  const float one = 2 / std::sqrt(16.0f / 6.0f);
  EXPECT_EQ(opened.summary.features, 4);
  EXPECT_EQ(opened.summary.classes, 3);
  EXPECT_EQ(opened.train->samples(), 6);
  expect_near(features(*opened.train, 0), {-one, 0, 1, 0});
  expect_near(features(*opened.train, 1), {one, 1, 0, 0});
  expect_near(features(*opened.train, 2), {0, 0, 1, 0});
  EXPECT_EQ(label(*opened.train, 0), 1);
  EXPECT_EQ(label(*opened.train, 1), 0);
  EXPECT_EQ(label(*opened.train, 5), 2);
}

TEST(Table, MarksMissingNumbersAndUnknownNames) {
  Table t = table_of("x,c,y\n1,u,0\n?,NA,1\n3,v,0\n", "y");
  t.eval = "x,c,y\nNaN,w,1\n5,v,0\n";
  const OpenedData opened = t.open();
  // x: mean 2, deviation 1, and an indicator. c: u, v, other.
  expect_near(features(*opened.train, 0), {-1, 0, 1, 0, 0});
  expect_near(features(*opened.train, 1), {0, 1, 0, 0, 1});
  expect_near(features(*opened.train, 2), {1, 0, 0, 1, 0});
  expect_near(features(*opened.eval, 0), {0, 1, 0, 0, 1});
  expect_near(features(*opened.eval, 1), {3, 0, 0, 1, 0});
}

TEST(Table, FillsTheMeanWhereOnlyEvaluationHasMissing) {
  Table t = table_of("x,y\n1,0\n3,1\n", "y");
  t.eval = "x,y\n,1\n";
  expect_near(features(*t.open().eval, 0), {0});
  t.train = "x,c,y\n1,u,0\n3,u,1\n";
  t.eval = "x,c,y\n,u,1\n";
  expect_near(features(*t.open().eval, 0), {0, 1, 0});
}

TEST(Table, ConstantColumnsBecomeZero) {
  // 0.1 summed thrice and divided by three is not 0.1.
  const Table t = table_of("x,z,y\n0.1,,0\n0.1,,1\n0.1,,1\n", "y");
  expect_near(features(*t.open().train, 2), {0, 0, 1});
}

TEST(Table, KeepsPrecisionFarFromZero) {
  const Table t = table_of("time,y\n1600000000,0\n1600000001,1\n1600000002,1\n", "y");
  const float step = 1 / std::sqrt(2.0f / 3.0f);
  const OpenedData opened = t.open();
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(features(*opened.train, i)[0], (i - 1) * step, 1e-6);
}

TEST(Table, ForcesAndIgnoresColumns) {
  Table t = table_of("id,zip,x,y\nfirst,10,1,0\nsecond,20,3,1\n", "y");
  t.table.ignore = {"id"};
  t.table.categorical = {"zip"};
  expect_near(features(*t.open().train, 1), {0, 1, 0, 1});
  t.table.numeric = {"x"};
  t.train += "third,10,many,1\n";
  expect_parts(error_of([&] { t.open(); }),
               {"train.csv:4", "column 'x'", "'many' is not a number"});
}

TEST(Table, ColumnsByNumberWithoutHeader) {
  Table t = table_of("1;a;5\n3;b;6\n", "1");
  t.table.header = false;
  t.table.delimiter = ";";
  const OpenedData opened = t.open();
  expect_near(features(*opened.train, 0), {-1, -1});
  EXPECT_EQ(label(*opened.train, 1), 1);
}

TEST(Table, LateNamesMakeTheWholeColumnCategorical) {
  std::string text = "x,z,y\n";
  for (int i = 0; i < 50; ++i) text += "1,2,0\n";
  text += "one,2,1\n1,two,1\n";
  const OpenedData opened = table_of(text, "y").open();
  EXPECT_EQ(opened.train->samples(), 52);
  expect_near(features(*opened.train, 49), {1, 0, 0, 1, 0, 0});
  expect_near(features(*opened.train, 50), {0, 1, 0, 1, 0, 0});
  expect_near(features(*opened.train, 51), {1, 0, 0, 0, 1, 0});
}

TEST(Table, SortsNumericClassNamesAsNumbers) {
  const OpenedData opened = table_of("x,y\n1,10\n2,9\n3,2\n", "y").open();
  EXPECT_EQ(label(*opened.train, 0), 2);
  EXPECT_EQ(label(*opened.train, 1), 1);
  EXPECT_EQ(label(*opened.train, 2), 0);
}

TEST(Table, TargetsOfTheOtherLosses) {
  const OpenedData mse = table_of("x,y\n1,-7.5\n2,1e3\n", "y", Loss::kMeanSquaredError).open();
  EXPECT_EQ(mse.train->target().shape, Shape{1});
  EXPECT_EQ(mse.summary.target_columns, 1);
  EXPECT_EQ(mse.summary.classes, 0);
  EXPECT_EQ(value(*mse.train, 0), -7.5f);
  EXPECT_EQ(value(*mse.train, 1), 1000.0f);
  const OpenedData names =
      table_of("x,y\n1,yes\n2,no\n3,yes\n", "y", Loss::kBinaryCrossEntropy).open();
  EXPECT_EQ(value(*names.train, 0), 1);
  EXPECT_EQ(value(*names.train, 1), 0);
  const OpenedData soft =
      table_of("x,y\n1,0.25\n2,1\n3,0\n", "y", Loss::kBinaryCrossEntropy).open();
  EXPECT_EQ(value(*soft.train, 0), 0.25f);
  EXPECT_EQ(value(*soft.train, 1), 1);
  const OpenedData signs =
      table_of("x,y\n1,-1\n2,1\n3,-1\n", "y", Loss::kBinaryCrossEntropy).open();
  EXPECT_EQ(value(*signs.train, 0), 0);
  EXPECT_EQ(value(*signs.train, 1), 1);
}

TEST(Table, StripsTheDotOnlyWhereThatMakesAClass) {
  Table t = table_of("x,y\n1,<=50K\n2,>50K\n3,etc.\n", "y");
  t.eval = "x,y\n1,>50K.\n2,<=50K.\n3,etc.\n";
  const OpenedData opened = t.open();
  EXPECT_EQ(label(*opened.eval, 0), 1);
  EXPECT_EQ(label(*opened.eval, 1), 0);
  EXPECT_EQ(label(*opened.eval, 2), 2);
  t.eval = "x,y\n1,>60K.\n";
  expect_parts(error_of([&] { t.open(); }),
               {"eval.csv:2", "'>60K.' is not one of '<=50K', '>50K', 'etc.'"});
}

// x = 0, 1, 2, ... with bad rows at the given records.
std::string counting_table(int records, const std::vector<int>& bad) {
  std::string text = "x,y\n";
  for (int i = 0; i < records; ++i) {
    const bool is_bad = std::find(bad.begin(), bad.end(), i) != bad.end();
    text += is_bad ? "too,many,fields\n" : std::to_string(i) + "," + std::to_string(i) + "\n";
  }
  return text;
}

std::vector<int> values(const Dataset& dataset) {
  std::vector<int> all;
  for (int64_t i = 0; i < dataset.samples(); ++i)
    all.push_back(static_cast<int>(value(dataset, i)));
  return all;
}

TEST(Table, BadRecordPolicies) {
  Table t = table_of(counting_table(8, {0, 3, 4, 7}), "y", Loss::kMeanSquaredError);
  t.config.max_bad_fraction = 0.5f;
  expect_parts(error_of([&] { t.open(); }),
               {"train.csv:2: has 3 fields, expected 2", "data.bad_records"});
  t.config.bad_records = BadRecords::kSkip;
  const OpenedData skipped = t.open();
  EXPECT_EQ(values(*skipped.train), (std::vector<int>{1, 2, 5, 6}));
  EXPECT_EQ(skipped.summary.bad_records, 4);
  t.config.bad_records = BadRecords::kReplace;
  const OpenedData replaced = t.open();
  EXPECT_EQ(values(*replaced.train), (std::vector<int>{1, 1, 2, 5, 5, 5, 6, 6}));
  EXPECT_EQ(replaced.summary.bad_records, 4);
  t.config.max_bad_fraction = 0.49f;
  expect_parts(
      error_of([&] { t.open(); }),
      {"4 of 8 records are bad", "data.max_bad_fraction = 0.49", "train.csv:2: has 3 fields"});
}

TEST(Table, BadRecordsOfEveryKindAreCounted) {
  Table t = table_of("x,n,y\n1,1,a\n\"2\"2,1,a\n3,?,a\n4,1,\n5,1,b\n6,oops,b\n7,1\n8,2,b\n", "y");
  t.table.numeric = {"n"};
  t.config.bad_records = BadRecords::kSkip;
  t.config.max_bad_fraction = 0.7f;
  t.eval = "x,n,y\n1,1,c\nword,1,a\n2,2,b.\n";
  const OpenedData opened = t.open();
  EXPECT_EQ(opened.train->samples(), 4);  // 1, 3, 5, 8
  EXPECT_EQ(opened.eval->samples(), 1);   // the class c and the word are bad
  EXPECT_EQ(opened.summary.bad_records, 4 + 2);
  EXPECT_EQ(opened.summary.classes, 2);
}

TEST(Table, HoldsOutAFixedPart) {
  Table t = table_of(counting_table(2000, {}), "y", Loss::kMeanSquaredError);
  t.table.eval_fraction = 0.3f;
  const OpenedData opened = t.open();
  const auto train = values(*opened.train), eval = values(*opened.eval);
  EXPECT_EQ(train.size() + eval.size(), 2000u);
  EXPECT_NEAR(static_cast<double>(eval.size()), 600, 100);  // five deviations of 20.5
  std::vector<int> all = train;
  all.insert(all.end(), eval.begin(), eval.end());
  std::sort(all.begin(), all.end());
  for (int i = 0; i < 2000; ++i) ASSERT_EQ(all[i], i);
  // Appending rows moves none of the old ones.
  t.train = counting_table(2500, {});
  const auto longer = values(*t.open().eval);
  ASSERT_TRUE(std::equal(eval.begin(), eval.end(), longer.begin()));
  // Statistics come from the training rows alone: their features have mean 0 and deviation 1.
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < opened.train->samples(); ++i) {
    const double x = features(*opened.train, i)[0];
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / static_cast<double>(train.size()), 0, 1e-6);
  EXPECT_NEAR(squares / static_cast<double>(train.size()), 1, 1e-6);
}

TEST(Table, ReplacesWithinItsOwnPart) {
  Table t = table_of(counting_table(400, {10, 11, 12, 200, 399}), "y", Loss::kMeanSquaredError);
  t.config.bad_records = BadRecords::kReplace;
  t.config.max_bad_fraction = 0.1f;
  t.table.eval_fraction = 0.5f;
  const OpenedData replaced = t.open();
  EXPECT_EQ(replaced.train->samples() + replaced.eval->samples(), 400);
  const auto train = values(*replaced.train), eval = values(*replaced.eval);
  for (int x : train)
    EXPECT_EQ(std::count(eval.begin(), eval.end(), x), 0) << x << " is in both parts";
}

TEST(Table, OpensFilesPlainAndCompressed) {
  test::TemporaryFolder folder;
  const std::string text = "\xEF\xBB\xBF\"x\", y\r\n1, \"a,b\"\r\n2, c\r\n";
  DataConfig config;
  config.dir = folder.path();
  for (const std::string& name :
       {folder.write("t.csv", text), folder.write("t", test::gzip(text))}) {
    TableConfig table;
    table.train = name;
    table.target = "y";
    config.source = table;
    const OpenedData opened = open_data(config, test::mlp(), 1, true);
    EXPECT_EQ(opened.train->samples(), 2);
    EXPECT_EQ(label(*opened.train, 0), 0);
    EXPECT_EQ(opened.train->resident_bytes(), 2 * (4 + 4 + 8 + 8));
  }
  EXPECT_EQ(open_data(config, test::mlp(), 1, false).train, nullptr);
}

TEST(TableEncoder, DescribesItself) {
  const TableText file{"x,c,y\n1,u,0\n?,v,1\n3,v,0\n", "f"};
  TableConfig config;
  config.target = "y";
  TableSchema schema = make_schema(file, config, {{config.target, ColumnKind::kCategorical}});
  BadRecordLog bad(DataConfig{}, "f");
  const TableColumns columns = read_columns(file, config, true, &schema, &bad);
  const std::vector<int64_t> rows = {0, 1, 2};
  const TableEncoder encoder(schema, columns, rows, "f");
  ASSERT_EQ(encoder.encodings().size(), 2u);
  const ColumnEncoding& x = encoder.encodings()[0];
  EXPECT_EQ(x.mean, 2);
  EXPECT_EQ(x.std, 1);
  EXPECT_TRUE(x.missing_indicator);
  const ColumnEncoding& c = encoder.encodings()[1];
  EXPECT_EQ(c.first_feature, 2);
  EXPECT_EQ(c.categories, (std::vector<std::string>{"u", "v"}));
}

// By the training rows alone, and told so that predictions can be brought back.
TEST(Table, StandardisesTheTarget) {
  Table t = table_of("x,y\n1,10\n2,20\n3,60\n", "y", Loss::kMeanSquaredError);
  t.eval = "x,y\n1,1000\n2,30\n";
  t.table.standardise_target = true;
  const OpenedData opened = t.open();
  const double mean = 30, std = std::sqrt((400 + 100 + 900) / 3.0);
  ASSERT_EQ(opened.summary.target_mean.size(), 1u);
  EXPECT_NEAR(opened.summary.target_mean[0], mean, 1e-12);
  EXPECT_NEAR(opened.summary.target_std[0], std, 1e-12);
  EXPECT_FLOAT_EQ(value(*opened.train, 2), static_cast<float>(30 / std));
  EXPECT_FLOAT_EQ(value(*opened.eval, 0), static_cast<float>(970 / std));
  EXPECT_FLOAT_EQ(value(*opened.eval, 1), 0);
  EXPECT_EQ(value(*t.open(TableUse::kEvaluation).eval, 0), value(*opened.eval, 0));
  t.table.standardise_target = false;
  EXPECT_TRUE(t.open().summary.target_std.empty());
  EXPECT_EQ(value(*t.open().eval, 0), 1000);
}

// Where only outputs are wanted, the targets' column may be there or not.
TEST(Table, InputsNeedNoTarget) {
  Table t = table_of("x,y,z\n1,no,u\n2,yes,v\n4,no,u\n", "y");
  const auto inputs_of = [&](const std::string& eval, bool header = true) {
    t.eval = eval;
    t.table.header = header;
    const OpenedData opened = t.open(TableUse::kInputs);
    EXPECT_EQ(opened.summary.class_names, (std::vector<std::string>{"no", "yes"}));
    return std::pair(features(*opened.eval, 0), features(*opened.eval, 1));
  };
  const auto wanted = inputs_of("x,y,z\n4,no,v\n1,yes,u\n");
  EXPECT_EQ(inputs_of("x,z\n4,v\n1,u\n"), wanted);
  EXPECT_EQ(inputs_of("x,y,z\n4,,v\n1,maybe,u\n"), wanted);
  EXPECT_NE(inputs_of("x,z\n1,v\n1,u\n"), wanted);
  const auto refusal = [&](const std::string& eval, TableUse use) {
    t.eval = eval;
    return test::error_of([&] { t.open(use); });
  };
  EXPECT_EQ(refusal("x,z\n4,v\n", TableUse::kEvaluation),
            "eval.csv: the header has 2 columns, expected 3; it has no column 'y'");
  EXPECT_EQ(refusal("x,y\n4,no\n", TableUse::kInputs),
            "eval.csv: column 1 of the header is 'y', but in the training file it is 'z'");
  EXPECT_EQ(
      refusal("x\n4\n", TableUse::kInputs),
      "eval.csv: the header has 1 columns, expected 3, or all but the target; it has no column "
      "'z'");
  EXPECT_EQ(refusal("x,z\n4,v\n1\n", TableUse::kInputs),
            "eval.csv:3: has 1 fields, expected 2 (set data.bad_records to SKIP or REPLACE to "
            "continue without it)");
  t = table_of("1,no,u\n2,yes,v\n4,no,u\n", "1");
  EXPECT_EQ(inputs_of("4,no,v\n1,yes,u\n", false), wanted);
  EXPECT_EQ(inputs_of("4,v\n1,u\n", false), wanted);
}

// Catches targets that are there and not read, and rows that are lost because theirs is not.
TEST(Table, InputsHaveTheTargetsThatAreThere) {
  Table t = table_of("x,y,z\n1,no,u\n2,yes,v\n4,no,u\n", "y");
  t.eval = "x,y,z\n4,yes,v\n1,,u\n\n1,maybe,u\n2,no,u\n";
  OpenedData opened = t.open(TableUse::kInputs);
  std::vector<int32_t> labels;
  for (int64_t i = 0; i < opened.eval->samples(); ++i) labels.push_back(opened.eval->label(i));
  EXPECT_EQ(labels, (std::vector<int32_t>{1, -1, -1, 0}));
  EXPECT_EQ(opened.eval->lines(), (std::vector<int64_t>{2, 3, 5, 6}));
  EXPECT_EQ(opened.summary.bad_records, 0);
  t.eval = "x,z\n4,v\n";
  EXPECT_EQ(t.open(TableUse::kInputs).eval->label(0), -1);

  t = table_of("x,y\n1,10\n2,20\n", "y", Loss::kMeanSquaredError);
  t.eval = "x,y\n1,15\n2,?\n3,\n";
  opened = t.open(TableUse::kInputs);
  EXPECT_EQ(value(*opened.eval, 0), 15);
  EXPECT_TRUE(std::isnan(value(*opened.eval, 1)));
  EXPECT_TRUE(std::isnan(value(*opened.eval, 2)));
  EXPECT_EQ(opened.summary.target_name, "y");
  t.eval = "x\n1\n";
  EXPECT_TRUE(std::isnan(value(*t.open(TableUse::kInputs).eval, 0)));
}

TEST(Table, AConstantTargetIsStandardisedToZero) {
  Table t = table_of("x,y\n1,0.1\n2,0.1\n3,0.1\n", "y", Loss::kMeanSquaredError);
  t.table.standardise_target = true;
  const OpenedData opened = t.open();
  EXPECT_EQ(value(*opened.train, 1), 0);
  EXPECT_EQ(opened.summary.target_mean[0], 0.1);
  EXPECT_EQ(opened.summary.target_std[0], 1);
}

// Catches spellings of yes and no that become classes, in either file, and with either loss.
TEST(TableTargets, SpellingsOfAnAnswerAreOneClass) {
  Table t = table_of("x,y\n1,True\n2,FALSE\n3,true\n4,False\n5,True\n6,False\n", "y");
  t.eval = "x,y\n1,TRUE\n2,false\n";
  OpenedData opened = t.open();
  EXPECT_EQ(opened.summary.class_names, (std::vector<std::string>{"False", "True"}));
  EXPECT_EQ(label(*opened.train, 0), 1);
  EXPECT_EQ(label(*opened.train, 1), 0);
  EXPECT_EQ(label(*opened.eval, 0), 1);
  EXPECT_EQ(label(*opened.eval, 1), 0);
  expect_parts(opened.summary.description, {"2 classes in 4 spellings"});
  t.model.loss = Loss::kBinaryCrossEntropy;
  opened = t.open();
  EXPECT_EQ(value(*opened.train, 0), 1);
  EXPECT_EQ(value(*opened.eval, 1), 0);
  t.train = "x,y\n1,1\n2,0\n";
  EXPECT_EQ(value(*t.open().eval, 0), 1);
  t = table_of("x,y\n1,Cat\n2,dog\n", "y");
  t.eval = "x,y\n1,cat\n";
  expect_parts(error_of([&] { t.open(); }), {"'cat' is not one of 'Cat', 'dog'", "only in case"});
}

}  // namespace
}  // namespace lockstep::data
