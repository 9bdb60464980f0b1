#include "runtime/config/from_proto.h"

#include "runtime/config/fields.h"
#include "runtime/config/names.h"

namespace lockstep {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::OneofDescriptor;
using google::protobuf::Reflection;

// FieldVisitor converts enums by number; every pair that has to agree is listed here.
template <typename Enum>
constexpr bool same(Enum value, int number) {
  return static_cast<int>(value) == number;
}
static_assert(same(Activation::kNone, proto::NONE) && same(Activation::kRelu, proto::RELU) &&
              same(Activation::kGeluTanh, proto::GELU_TANH) &&
              same(Activation::kGeluErf, proto::GELU_ERF) && same(Activation::kSilu, proto::SILU) &&
              same(Activation::kTanh, proto::TANH));
static_assert(same(Loss::kSoftmaxCrossEntropy, proto::SOFTMAX_CROSS_ENTROPY) &&
              same(Loss::kBinaryCrossEntropy, proto::BINARY_CROSS_ENTROPY) &&
              same(Loss::kMeanSquaredError, proto::MEAN_SQUARED_ERROR));
static_assert(same(ResnetConfig::Shortcut::kProjection, proto::ResnetConfig::PROJECTION) &&
              same(ResnetConfig::Shortcut::kPadded, proto::ResnetConfig::PADDED) &&
              same(ResnetConfig::Stem::kImagenet, proto::ResnetConfig::IMAGENET) &&
              same(ResnetConfig::Stem::kCifar, proto::ResnetConfig::CIFAR));
static_assert(same(LenetConfig::Pooling::kMax, proto::LenetConfig::MAX) &&
              same(LenetConfig::Pooling::kAverage, proto::LenetConfig::AVERAGE));
static_assert(same(TokensConfig::Format::kRawUint16, proto::TokensConfig::RAW_UINT16) &&
              same(TokensConfig::Format::kLlmc, proto::TokensConfig::LLMC));
static_assert(same(BadRecords::kFail, proto::FAIL) && same(BadRecords::kSkip, proto::SKIP) &&
              same(BadRecords::kReplace, proto::REPLACE));
static_assert(same(ScheduleConfig::Kind::kConstant, proto::ScheduleConfig::CONSTANT) &&
              same(ScheduleConfig::Kind::kLinear, proto::ScheduleConfig::LINEAR) &&
              same(ScheduleConfig::Kind::kCosine, proto::ScheduleConfig::COSINE) &&
              same(ScheduleConfig::Kind::kStep, proto::ScheduleConfig::STEP) &&
              same(ScheduleConfig::Kind::kPolynomial, proto::ScheduleConfig::POLYNOMIAL) &&
              same(ScheduleConfig::Kind::kWarmupStableDecay,
                   proto::ScheduleConfig::WARMUP_STABLE_DECAY));
static_assert(same(EvalConfig::Metric::kLoss, proto::EvalConfig::LOSS) &&
              same(EvalConfig::Metric::kAccuracy, proto::EvalConfig::ACCURACY));
static_assert(same(CommConfig::Order::kTree, proto::CommConfig::TREE) &&
              same(CommConfig::Order::kFast, proto::CommConfig::FAST));
static_assert(same(Precision::kFp32, proto::FP32) && same(Precision::kBf16, proto::BF16) &&
              same(Precision::kFp16, proto::FP16));
static_assert(same(ExecutionConfig::Recompute::kNothing, proto::ExecutionConfig::NOTHING) &&
              same(ExecutionConfig::Recompute::kBlocks, proto::ExecutionConfig::BLOCKS));

// Paths and column names become C strings or lines of text further down.
void check_text(const std::string& path, const std::string& value) {
  if (value.find('\0') != std::string::npos) {
    refuse_value(path, in_quotes(value), "text without NUL bytes");
  }
}

class SectionReader final : public FieldVisitor {
 public:
  // `message` must outlive the reader; `prefix` is "" or a path that ends in a dot.
  SectionReader(const Message& message, std::string prefix)
      : FieldVisitor(message.GetDescriptor()),
        message_(message),
        from_(*message.GetReflection()),
        prefix_(std::move(prefix)) {}

  void field(const char* name, bool& value) override {
    const FieldDescriptor* f = visit(name);
    if (from_.HasField(message_, f)) value = from_.GetBool(message_, f);
  }

  void field(const char* name, uint64_t& value) override {
    const FieldDescriptor* f = visit(name);
    if (from_.HasField(message_, f)) value = from_.GetUInt64(message_, f);
  }

  void field(const char* name, std::string& value) override {
    const FieldDescriptor* f = visit(name);
    if (from_.HasField(message_, f)) value = from_.GetString(message_, f);
    check_text(path(name), value);
  }

  void field(const char* name, std::vector<std::string>& value) override {
    const FieldDescriptor* f = visit(name);
    const int count = from_.FieldSize(message_, f);
    if (count > 0) value.clear();
    for (int i = 0; i < count; ++i) {
      value.push_back(from_.GetRepeatedString(message_, f, i));
      check_text(path(name), value.back());
    }
  }

  void field(const char* name, int64_t& value, const IntegerLimit& limit) override {
    const FieldDescriptor* f = visit(name);
    if (from_.HasField(message_, f)) value = from_.GetInt64(message_, f);
    check_limit(path(name), value, limit);
  }

  void field(const char* name, std::vector<int64_t>& value, const IntegerLimit& limit) override {
    const FieldDescriptor* f = visit(name);
    const int count = from_.FieldSize(message_, f);
    if (count > 0) value.clear();
    for (int i = 0; i < count; ++i) {
      value.push_back(from_.GetRepeatedInt64(message_, f, i));
      check_limit(path(name), value.back(), limit);
    }
  }

  void field(const char* name, float& value, const RealLimit& limit) override {
    const FieldDescriptor* f = visit(name);
    if (from_.HasField(message_, f)) value = from_.GetFloat(message_, f);
    check_limit(path(name), value, limit);
  }

  void field(const char* name, double& value, const RealLimit& limit) override {
    const FieldDescriptor* f = visit(name);
    if (from_.HasField(message_, f)) value = from_.GetDouble(message_, f);
    check_limit(path(name), value, limit);
  }

  void field(const char* name, std::vector<float>& value, const RealLimit& limit) override {
    const FieldDescriptor* f = visit(name);
    const int count = from_.FieldSize(message_, f);
    if (count > 0) value.clear();
    for (int i = 0; i < count; ++i) {
      value.push_back(from_.GetRepeatedFloat(message_, f, i));
      check_limit(path(name), value.back(), limit);
    }
  }

  bool applies(const char* name, bool condition, const char* when) override {
    if (condition) return true;
    const FieldDescriptor* f = visit(name);
    if (from_.HasField(message_, f)) refuse_value(path(name), from_.GetFloat(message_, f), when);
    return false;
  }

  std::unique_ptr<FieldVisitor> section(const char* name) override {
    const Message& below = from_.GetMessage(message_, visit(name));
    return std::make_unique<SectionReader>(below, path(name) + ".");
  }

  std::unique_ptr<FieldVisitor> option(const char* name, bool /*held*/) override {
    const FieldDescriptor* f = visit(name);
    if (!from_.HasField(message_, f)) return nullptr;
    const Message& below = from_.GetMessage(message_, f);
    return std::make_unique<SectionReader>(below, path(name) + ".");
  }

  void require_one_of(const char* oneof) override {
    const OneofDescriptor* choice = message_.GetDescriptor()->FindOneofByName(oneof);
    LOCKSTEP_CHECK(choice != nullptr, "no oneof {}", oneof);
    if (from_.HasOneof(message_, choice)) return;
    std::vector<std::string> names;
    for (int i = 0; i < choice->field_count(); ++i) names.push_back(choice->field(i)->name());
    const std::string section = prefix_.substr(0, prefix_.size() - 1);
    throw ConfigError("{}: missing; allowed: one of {}", section, join(names, ", "));
  }

 private:
  void enum_field(const char* name, int& value) override {
    const FieldDescriptor* f = visit(name);
    if (from_.HasField(message_, f)) value = from_.GetEnumValue(message_, f);
  }

  std::string path(const char* name) const { return prefix_ + name; }

  const Message& message_;
  const Reflection& from_;
  const std::string prefix_;
};

}  // namespace

RunConfig from_proto(const proto::RunConfig& message) {
  RunConfig config;
  SectionReader reader(message, "");
  visit_fields(reader, config);
  return config;
}

}  // namespace lockstep
