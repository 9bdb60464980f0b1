#include "runtime/data/text/documents.h"

#include "runtime/base/error.h"
#include "runtime/base/file_kind.h"
#include "runtime/base/json.h"
#include "runtime/base/names.h"
#include "runtime/data/source_file.h"
#include "runtime/data/tables/column_names.h"
#include "runtime/data/tables/csv.h"

namespace lockstep::data {
namespace {

DocumentFormat format_by_name(std::string_view path) {
  if (has_suffix(path, ".gz")) path.remove_suffix(3);
  if (has_suffix(path, ".jsonl") || has_suffix(path, ".ndjson")) return DocumentFormat::kJsonLines;
  if (has_suffix(path, ".csv")) return DocumentFormat::kCsv;
  if (has_suffix(path, ".tsv")) return DocumentFormat::kTsv;
  return DocumentFormat::kText;
}

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

// The text with "\n" at the end of each line.
std::string with_plain_line_ends(std::string_view text) {
  std::string plain;
  plain.reserve(text.size());
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '\r')
      plain += text[at];
    else if (at + 1 == text.size() || text[at + 1] != '\n')
      plain += '\n';
  }
  return plain;
}

// The separator with the line ends of a text, which are those of its first line.
std::string separator_in(std::string_view text, std::string separator) {
  separator = with_plain_line_ends(separator);
  const size_t first = text.find_first_of("\r\n");
  if (first == std::string_view::npos || text[first] == '\n') return separator;
  const std::string_view end = text.substr(first).starts_with("\r\n") ? "\r\n" : "\r";
  std::string fitting;
  for (const char c : separator)
    if (c == '\n')
      fitting += end;
    else
      fitting += c;
  return fitting;
}

// Throws DataError if a file that is read as text for want of another format in its name is JSON or
// a web page.
void refuse_other_than_text(std::string_view text, const std::string& path) {
  const FileKind kind = file_kind(text);
  const bool page = kind.id == "html" && !has_suffix(path, ".html") && !has_suffix(path, ".htm");
  if (page)
    throw DataError(
        "{}: is {}; {}, or give --format text to read it as it is", path, kind.name, kind.remedy);
  if (is_json(text.substr(0, kFileKindBytes)))
    throw DataError(
        "{}: is JSON; give --format jsonl to read a member of the object on each line, or --format "
        "text to read it as it is",
        path);
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
  text_ = text_in(bytes, path, /*rows=*/format_ != DocumentFormat::kText);
  if (format_ == DocumentFormat::kText && !options_.format) refuse_other_than_text(text_, path);
  if (format_ == DocumentFormat::kCsv || format_ == DocumentFormat::kTsv)
    table_ = std::make_unique<Table>(
        text_, format_ == DocumentFormat::kCsv ? ',' : '\t', options_.column, path);
  if (format_ == DocumentFormat::kJsonLines) records_ = JsonRecords(text_, path);
  separator_ = separator_in(text_, options_.separator);
  lines_ = Lines(text_);
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
  const size_t end = separator_.empty() ? std::string_view::npos : rest.find(separator_);
  position_ += end == std::string_view::npos ? rest.size() : end + separator_.size();
  return rest.substr(0, end);
}

// The lines up to a blank one, with their ends. Skips the blank line.
std::string_view DocumentReader::up_to_blank_line() {
  const size_t begin = position_;
  for (std::string_view line; lines_.next(&line);) {
    const size_t end = position_;
    position_ = text_.size() - lines_.rest().size();
    if (is_blank(line)) return text_.substr(begin, end - begin);
  }
  return text_.substr(begin);
}

bool DocumentReader::next_text(RawDocument* document) {
  while (position_ < text_.size()) {
    *document = {};
    if (options_.split == DocumentSplit::kBlankLines) {
      document->bytes = up_to_blank_line();
    } else if (options_.split == DocumentSplit::kLines) {
      lines_.next(&document->bytes);
      position_ = text_.size() - lines_.rest().size();
    } else {
      document->bytes = up_to_separator();
    }
    if (!document->bytes.empty()) return true;
  }
  return false;
}

bool DocumentReader::next_line(RawDocument* document) {
  std::string_view record;
  const bool found = records_.next(&record);
  position_ = text_.size() - records_.rest().size();
  if (found) *document = {.bytes = record, .cell = {}, .line = records_.number(), .problem = {}};
  return found;
}

std::optional<std::string_view> DocumentReader::text_of(RawDocument* document,
                                                        std::string* held) const {
  if (!document->problem.empty()) return std::nullopt;
  if (table_ != nullptr) return document->cell;
  if (format_ != DocumentFormat::kJsonLines) {
    if (document->bytes.find('\r') == std::string_view::npos) return document->bytes;
    *held = with_plain_line_ends(document->bytes);
    return *held;
  }
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
    document->problem = problem_in_line(error);
    return std::nullopt;
  }
}

}  // namespace lockstep::data
