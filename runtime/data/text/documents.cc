#include "runtime/data/text/documents.h"

#include <algorithm>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/data/source_file.h"
#include "runtime/data/tables/column_names.h"
#include "runtime/data/tables/csv.h"

namespace lockstep {
namespace {

DocumentFormat format_by_name(std::string_view path) {
  if (path.ends_with(".gz")) path.remove_suffix(3);
  if (path.ends_with(".jsonl") || path.ends_with(".ndjson")) return DocumentFormat::kJsonLines;
  if (path.ends_with(".csv")) return DocumentFormat::kCsv;
  if (path.ends_with(".tsv")) return DocumentFormat::kTsv;
  return DocumentFormat::kText;
}

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

}  // namespace

// Reads one column of the rows after the first line.
class DocumentReader::Table {
 public:
  Table(std::string_view text, char delimiter, const std::string& column, const std::string& path)
      : rows_(text, delimiter) {
    if (!rows_.next()) return;
    if (!rows_.problem().empty()) throw DataError("{}:{}: {}", path, rows_.line(), rows_.problem());
    const auto& names = rows_.fields();
    const auto found = find_name(path, names, column);
    if (!found)
      throw DataError("{}: has no column '{}'; allowed: {}", path, column, list_names(names));
    column_ = *found;
    width_ = names.size();
  }

  bool next(RawDocument* document) {
    while (rows_.next()) {
      *document = {.bytes = {}, .cell = {}, .line = rows_.line(), .problem = rows_.problem()};
      if (document->problem.empty())
        document->problem = problem_of_width(rows_.fields().size(), width_);
      if (!document->problem.empty()) return true;
      document->cell = rows_.fields()[column_];
      if (!document->cell.empty()) return true;
    }
    return false;
  }

  size_t position() const { return rows_.position(); }

 private:
  CsvReader rows_;
  size_t column_ = 0;
  size_t width_ = 0;  // cells of a row
};

DocumentReader::DocumentReader(const std::string& path, const DocumentOptions& options)
    : options_(options), format_(options.format.value_or(format_by_name(path))) {
  try {
    mapped_ = MappedFile(path, ExitCode::kData);
  } catch (const IoError& error) {
    throw DataError("{}", error.what());
  }
  std::span<const std::byte> bytes = mapped_.bytes();
  if (is_gzip(bytes)) {
    unpacked_ = gunzip(bytes, path);
    bytes = unpacked_;
  }
  text_ = text_in(bytes, path);
  if (format_ == DocumentFormat::kCsv || format_ == DocumentFormat::kTsv)
    table_ = std::make_unique<Table>(
        text_, format_ == DocumentFormat::kCsv ? ',' : '\t', options_.column, path);
}

DocumentReader::~DocumentReader() = default;

bool DocumentReader::next(RawDocument* document) {
  if (table_ != nullptr) {
    const bool found = table_->next(document);
    position_ = table_->position();
    return found;
  }
  return format_ == DocumentFormat::kJsonLines ? next_line(document) : next_text(document);
}

// The text up to the next separator. Skips the separator.
std::string_view DocumentReader::up_to_separator() {
  const std::string_view rest = text_.substr(position_);
  if (!options_.blank_lines) {
    const size_t end =
        options_.separator.empty() ? std::string_view::npos : rest.find(options_.separator);
    position_ += end == std::string_view::npos ? rest.size() : end + options_.separator.size();
    return rest.substr(0, end);
  }
  size_t line = 0;  // offset of the current line
  while (line < rest.size()) {
    const size_t newline = std::min(rest.find('\n', line), rest.size());
    const size_t next_line = std::min(newline + 1, rest.size());
    if (is_blank(rest.substr(line, newline - line))) {
      position_ += next_line;
      return rest.substr(0, line);
    }
    line = next_line;
  }
  position_ += rest.size();
  return rest;
}

bool DocumentReader::next_text(RawDocument* document) {
  while (position_ < text_.size()) {
    *document = {.bytes = up_to_separator(), .cell = {}, .line = 0, .problem = {}};
    if (!document->bytes.empty()) return true;
  }
  return false;
}

bool DocumentReader::next_line(RawDocument* document) {
  while (position_ < text_.size()) {
    const std::string_view rest = text_.substr(position_);
    const size_t end = std::min(rest.find('\n'), rest.size());
    position_ += std::min(end + 1, rest.size());
    ++line_;
    if (is_blank(rest.substr(0, end))) continue;
    *document = {.bytes = rest.substr(0, end), .cell = {}, .line = line_, .problem = {}};
    return true;
  }
  return false;
}

std::optional<std::string_view> DocumentReader::text_of(RawDocument* document,
                                                        std::string* held) const {
  if (!document->problem.empty()) return std::nullopt;
  if (table_ != nullptr) return document->cell;
  if (format_ != DocumentFormat::kJsonLines) return document->bytes;
  try {
    const Json line = Json::parse(document->bytes);
    if (line.kind() != Json::Kind::kObject) {
      document->problem = "is not a JSON object";
      return std::nullopt;
    }
    const Json* text = line.find(options_.field);
    if (text == nullptr || !text->is_string()) {
      document->problem = fmt::format("'{}' is {}; allowed: a string",
                                      options_.field,
                                      text == nullptr ? "missing" : "not a string");
      return std::nullopt;
    }
    *held = text->get<std::string>();
    return *held;
  } catch (const JsonError& error) {
    document->problem = error.what();
    return std::nullopt;
  }
}

}  // namespace lockstep
