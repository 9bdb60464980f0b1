#pragma once
// Reads the documents of text files, JSON lines and tables.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/file.h"
#include "runtime/base/text.h"
#include "runtime/data/text/json_lines.h"

namespace lockstep::data {

enum class DocumentFormat : uint8_t { kText, kJsonLines, kCsv, kTsv };

// What ends a document of a text file: a separator, one or more blank lines, or the end of a line.
enum class DocumentSplit : uint8_t { kSeparator, kBlankLines, kLines };

struct DocumentOptions {
  // The format of every file. If unset, it follows from the name without .gz: .jsonl and .ndjson
  // are JSON lines, .csv and .tsv are tables, others are text.
  std::optional<DocumentFormat> format = {};
  DocumentSplit split = DocumentSplit::kSeparator;
  std::string separator = {};   // empty: a file is one document
  std::string field = "text";   // the member of each JSON line that is the document, a string
  std::string column = "text";  // the column of a table, by its name in the first line
};

// A document that text_of() has not parsed yet.
struct RawDocument {
  std::string_view bytes;  // of a text file: the text; of JSON lines: the line
  std::string cell;        // of a table: the text
  int64_t line = 0;        // on which it begins, from 1; 0 for a text file
  std::string problem;     // why it cannot be used, or ""
};

// Reads the documents of a file, plain or gzip-compressed, in order. Lines of text files may end as
// on any system: in documents every line ends with "\n", also if the separator has line ends. A
// byte order mark at the beginning is skipped. Not thread-safe.
class DocumentReader {
 public:
  // Throws DataError if the file cannot be read, or if it is a table in which no column or more
  // than one column has the name.
  DocumentReader(const std::string& path, const DocumentOptions& options);
  ~DocumentReader();

  // Reads the next document. Returns false at the end. Its bytes are valid as long as the reader.
  // Skips empty texts, cells and lines. A row whose number of cells differs from the first line's
  // has a problem.
  bool next(RawDocument* document);

  // The text of a document, which `held` may own. Parses a JSON line. Sets the
  // document's problem and returns nothing if the line is not an object or the member is not a
  // string. May be called from any thread.
  std::optional<std::string_view> text_of(RawDocument* document, std::string* held) const;

  // Bytes of the text after decompression, and how many of them next() has passed.
  uint64_t total_bytes() const { return text_.size(); }
  uint64_t passed_bytes() const { return position_; }

 private:
  class Table;

  bool next_text(RawDocument* document);
  bool next_line(RawDocument* document);
  std::string_view up_to_separator();
  std::string_view up_to_blank_line();

  DocumentOptions options_;
  DocumentFormat format_;
  std::string separator_;  // with the line ends of this file
  MappedFile mapped_;
  std::vector<std::byte> unpacked_;
  std::string_view text_;
  size_t position_ = 0;
  Lines lines_{std::string_view()};  // what follows position_, if the text is read by lines
  JsonRecords records_;              // the same for JSON
  std::unique_ptr<Table> table_;
};

}  // namespace lockstep::data
