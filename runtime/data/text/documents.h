#pragma once
// Documents of text in files of several kinds, one after the other.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/file.h"

namespace lockstep {

enum class DocumentFormat : uint8_t { kText, kJsonLines, kCsv, kTsv };

struct DocumentOptions {
  // Of each file; none: .jsonl and .ndjson are JSON lines, .csv and .tsv tables, and others text,
  // by their names (without .gz).
  std::optional<DocumentFormat> format = {};
  // Between the documents of a text file, and part of none. Empty: a file is one document.
  std::string separator = {};
  // Blank lines, one or more, are the separator.
  bool blank_lines = false;
  std::string field = "text";   // the member of each JSON line that is the document, a string
  std::string column = "text";  // of a table, by its name in the first line
};

// A document as it stands in its file: how much of it there is to do is not known to the reader.
struct RawDocument {
  std::string_view bytes;  // of a text or a cell: the text; of a JSON line: the line
  std::string cell;        // owns the bytes of a cell with doubled quotes
  int64_t line = 0;        // where it begins, from 1; 0: of a text file
  std::string problem;     // why there is no document; empty: there is one
};

// The documents of one file, plain or gzip-compressed, in its order. Not thread-safe.
class DocumentReader {
 public:
  // Throws DataError where the file cannot be read, or is a table without the column or with two of
  // its name.
  DocumentReader(const std::string& path, const DocumentOptions& options);
  ~DocumentReader();

  // The next one, or false at the end. Its bytes are there as long as the reader. What is blank is
  // passed over: empty texts, cells and lines. A row with more or fewer cells than the first line
  // has a problem.
  bool next(RawDocument* document);

  // The text of a document: that of a JSON line has to be read first, which any thread may do.
  // `held` owns it where need be. None, and the document's problem: the line is no object, or has
  // no string as that member.
  std::optional<std::string_view> text_of(RawDocument* document, std::string* held) const;

  // Bytes of the text, after decompression, and how many of them have been passed.
  uint64_t total_bytes() const { return text_.size(); }
  uint64_t passed_bytes() const { return position_; }

 private:
  class Table;

  bool next_text(RawDocument* document);
  bool next_line(RawDocument* document);
  std::string_view up_to_separator();

  DocumentOptions options_;
  DocumentFormat format_;
  MappedFile mapped_;
  std::vector<std::byte> unpacked_;
  std::string_view text_;
  size_t position_ = 0;
  int64_t line_ = 0;
  std::unique_ptr<Table> table_;
};

}  // namespace lockstep
