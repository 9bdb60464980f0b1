#include "runtime/config/text.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include "runtime/base/error.h"
#include "runtime/config/text_error.h"

namespace lockstep {
namespace {

using google::protobuf::TextFormat;

constexpr int kMostNesting = 100;

// Keeps the first error: the ones after it are usually its consequences.
class FirstError final : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line,
                google::protobuf::io::ColumnNumber column,
                const std::string& message) override {
    if (!message_.empty()) return;
    line_ = line;
    column_ = column;
    message_ = message;
  }
  int line() const { return line_; }
  int column() const { return column_; }
  const std::string& message() const { return message_; }

 private:
  int line_ = 0;
  int column_ = 0;
  std::string message_;
};

}  // namespace

proto::RunConfig parse_text(const std::string& text, const std::string& origin) {
  if (text.size() > kMostConfigBytes) {
    throw ConfigError(
        "{}: size is {} bytes; allowed: at most {}", origin, text.size(), kMostConfigBytes);
  }
  FirstError error;
  TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  parser.SetRecursionLimit(kMostNesting);
  proto::RunConfig message;
  if (!parser.ParseFromString(text, &message)) {
    throw ConfigError(
        "{}:{}", origin, describe_text_error(text, error.line(), error.column(), error.message()));
  }
  return message;
}

std::string print_text(const proto::RunConfig& message) {
  TextFormat::Printer printer;
  printer.SetUseShortRepeatedPrimitives(true);
  printer.SetUseUtf8StringEscaping(true);
  std::string text;
  LOCKSTEP_CHECK(printer.PrintToString(message, &text));
  return text;
}

}  // namespace lockstep
