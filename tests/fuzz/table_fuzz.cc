// Delimited tables, from text to samples: finds reads outside the text, features that are not
// finite, labels that are no class, and inputs that end in anything but an error for the user.

#include <algorithm>
#include <cmath>
#include <string_view>

#include "fuzz_target.h"
#include "runtime/data/tables/table.h"

namespace lockstep::fuzz {

// The first byte chooses the options, what follows '\x01' is the evaluation file.
std::vector<std::string> seed_inputs() {
  const std::string train =
      "age,job,\"weight, kg\",y\n39, State-gov, "
      "77.5,<=50K\n50,?,,>50K\n\"38\",Private,1e2,\"<=50K\"\r\n4,\"a \"\"b\"\"\",1,>50K\n";
  const std::string eval = "age,job,\"weight, kg\",y\n1,Other,NaN,>50K.\n2,Private,5,<=50K\n";
  const std::string numbers = "x,y\n1,0\n2,1\n3,0.5\n-4.5e1,1\n";
  const std::string mark = "\xEF\xBB\xBF", border(1, '\x01');
  std::vector<std::string> seeds;
  for (char options = 0; options < 24; ++options) {
    const std::string first(1, options);
    seeds.insert(seeds.end(),
                 {first + train,
                  first + train + border + eval,
                  first + numbers,
                  first + mark + numbers + border + numbers});
  }
  return seeds;
}

}  // namespace lockstep::fuzz

namespace {

using namespace lockstep;

// `optional`: targets may be missing.
void check(const data::Dataset& dataset, int64_t classes, bool optional) {
  std::vector<float> x(static_cast<size_t>(dataset.input().shape.elements()));
  for (int64_t i = 0; i < dataset.samples(); ++i) {
    std::byte target[4];
    dataset.read(
        {.index = i, .epoch = 0, .augment = false}, reinterpret_cast<std::byte*>(x.data()), target);
    for (float value : x)
      if (!std::isfinite(value)) fuzz::fail("a feature is not finite");
    if (dataset.target().dtype == DType::kI32) {
      const int32_t label = *reinterpret_cast<const int32_t*>(target);
      if (label < (optional ? -1 : 0) || label >= classes) fuzz::fail("a label is no class");
    } else if (const float value = *reinterpret_cast<const float*>(target);
               !std::isfinite(value) && !(optional && std::isnan(value))) {
      fuzz::fail("a target is not finite");
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const int options = data[0] % 24;
  const data::TableUse use =
      data[0] / 24 % 2 == 0 ? data::TableUse::kTraining : data::TableUse::kInputs;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t border = std::min(text.find('\x01'), text.size());
  const data::TableText train{text.substr(0, border), "train"};
  const data::TableText eval{text.substr(std::min(border + 1, text.size())), "eval"};
  DataConfig config;
  config.bad_records = options % 4 < 2 ? BadRecords::kSkip : BadRecords::kReplace;
  config.max_bad_fraction = 1;
  TableConfig table;
  table.header = options % 2 == 0;
  table.target.assign(1, table.header ? 'y' : '1');
  table.eval_fraction = options / 12 != 0 ? 0.3f : 0;
  config::ModelTraits model;
  model.loss = static_cast<Loss>(options / 4 % 3);
  fuzz::expect_errors_only([&] {
    const data::OpenedData opened =
        data::make_table(train, border < text.size() ? &eval : nullptr, config, table, model, use);
    const bool optional = use == data::TableUse::kInputs;
    if (opened.train != nullptr) check(*opened.train, opened.summary.classes, optional);
    if (opened.eval != nullptr) check(*opened.eval, opened.summary.classes, optional);
  });
  return 0;
}
