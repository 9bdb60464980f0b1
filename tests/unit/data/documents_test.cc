// Catches documents that begin or end elsewhere than their borders, texts that are lost or read
// twice, bad lines that pass or are named wrongly, and token files whose borders do not fit.

#include "runtime/data/text/documents.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "files.h"
#include "runtime/data/text/token_file.h"

namespace lockstep::data {
namespace {

using test::error_of;
using test::expect_parts;

std::string file_in(const test::TemporaryFolder& folder,
                    const std::string& name,
                    const std::string& content) {
  return (folder.path() / folder.write(name, content)).string();
}

// All texts of a file; of a bad line "line: why" in brackets.
std::vector<std::string> texts_of(const std::string& path, const DocumentOptions& options) {
  DocumentReader reader(path, options);
  std::vector<std::string> texts;
  RawDocument document;
  std::string held;
  while (reader.next(&document)) {
    const auto text = reader.text_of(&document, &held);
    texts.push_back(text ? std::string(*text)
                         : fmt::format("[{}: {}]", document.line, document.problem));
  }
  EXPECT_EQ(reader.passed_bytes(), reader.total_bytes());
  return texts;
}

using Texts = std::vector<std::string>;

TEST(Documents, OfTextFiles) {
  test::TemporaryFolder folder;
  const std::string path = file_in(folder, "a.txt", "one\ntwo\n \t\r\n\nthree\n##\n####four");
  EXPECT_EQ(texts_of(path, {}), (Texts{"one\ntwo\n \t\n\nthree\n##\n####four"}));
  EXPECT_EQ(texts_of(path, {.split = DocumentSplit::kBlankLines}),
            (Texts{"one\ntwo\n", "three\n##\n####four"}));
  EXPECT_EQ(texts_of(path, {.separator = "##"}), (Texts{"one\ntwo\n \t\n\nthree\n", "\n", "four"}));
  EXPECT_EQ(texts_of(file_in(folder, "b.txt", "x\n\ny\n"), {.separator = "\n"}), (Texts{"x", "y"}));
  EXPECT_EQ(texts_of(file_in(folder, "c.txt", "\n\n\n"), {.split = DocumentSplit::kBlankLines}),
            Texts{});
  EXPECT_EQ(texts_of(file_in(folder, "empty.txt", ""), {}), Texts{});
}

TEST(Documents, OtherFormatsWithoutTheirEndingAreNamed) {
  test::TemporaryFolder folder;
  const std::string page = "<html>a</html>", line = "{\"text\": \"a\"}\n";
  const auto error = [&](const std::string& name, const std::string& text) {
    return error_of([&] { texts_of(file_in(folder, name, text), {}); });
  };
  expect_parts(error("a.txt", page), {"a.txt: is a web page", "--format text"});
  expect_parts(error("a.json", line), {"a.json: is JSON", "--format jsonl", "--format text"});
  expect_parts(error("b.json", "[{\"text\": \"a\"}]"), {"b.json: is JSON"});
  expect_parts(error("c.txt", std::string("a\0b\0", 4)), {"UTF-16; allowed", "-f UTF-16LE"});
  EXPECT_EQ(texts_of(file_in(folder, "a.html", page), {}), Texts{page});
  EXPECT_EQ(texts_of(file_in(folder, "d.json", line), {.format = DocumentFormat::kText}),
            Texts{line});
  EXPECT_EQ(texts_of(file_in(folder, "e.txt", "[a] {b}"), {}), Texts{"[a] {b}"});
}

// Texts from Windows and from old Macs have the same documents.
TEST(Documents, LinesEndAsOnAnySystem) {
  test::TemporaryFolder folder;
  const std::string text = "one\ntwo\n\n \nthree\n--\nfour";
  const DocumentOptions lines{.split = DocumentSplit::kLines},
      blank_lines{.split = DocumentSplit::kBlankLines}, separator{.separator = "\n--\n"};
  int number = 0;
  for (const std::string end : {"\n", "\r\n", "\r"}) {
    std::string other = "\xEF\xBB\xBF";
    for (const char c : text) c == '\n' ? other += end : other += c;
    const std::string path = file_in(folder, fmt::format("{}.txt", ++number), other);
    EXPECT_EQ(texts_of(path, {}), Texts{text});
    EXPECT_EQ(texts_of(path, lines), (Texts{"one", "two", " ", "three", "--", "four"}));
    EXPECT_EQ(texts_of(path, blank_lines), (Texts{"one\ntwo\n", "three\n--\nfour"}));
    EXPECT_EQ(texts_of(path, separator), (Texts{"one\ntwo\n\n \nthree", "four"}));
    const std::string rows = "{\"text\": \"a\u2028b\"}" + end + end + "{\"text\": 5}" + end;
    EXPECT_EQ(texts_of(file_in(folder, fmt::format("{}.jsonl", number), rows), {}),
              (Texts{"a\u2028b", "[3: 'text' is not a string; allowed: a string]"}));
  }
}

TEST(Documents, OfJsonLines) {
  test::TemporaryFolder folder;
  const std::string path = file_in(folder,
                                   "a.jsonl",
                                   "{\"text\": \"a\\nb\", \"id\": 3}\r\n\n"
                                   "{\"text\": 5}\n"
                                   "{\"other\": \"c\"}\n"
                                   "[1]\n"
                                   "{\"text\": \"\\u00e9\"}");
  EXPECT_EQ(texts_of(path, {}),
            (Texts{"a\nb",
                   "[3: 'text' is not a string; allowed: a string]",
                   "[4: 'text' is missing; allowed: a string]",
                   "[5: is not a JSON object]",
                   "é"}));
  const Texts others = texts_of(path, {.field = "other"});
  EXPECT_EQ(others[2], "c");
  const Texts broken = texts_of(file_in(folder, "b.ndjson", "{\"text\": \"a\n"), {});
  ASSERT_EQ(broken.size(), 1u);
  expect_parts(broken[0], {"[1: ", "parse error"});
}

TEST(Documents, FilesOfOtherFormatsAreRefusedWithAWayToConvertThem) {
  test::TemporaryFolder folder;
  const auto error = [&](const std::string& name, const std::string& bytes) {
    const std::string path = file_in(folder, name, bytes);
    return error_of([&] { DocumentReader reader(path, {}); });
  };
  expect_parts(error("a.parquet", "PAR1 and columns PAR1"),
               {"a.parquet: is a Parquet file", "read_parquet", "to_json"});
  expect_parts(error("a.zst", "\x28\xb5\x2f\xfd...."), {"a.zst: is a Zstandard file", "zstd -d"});
  expect_parts(error("a.zip", std::string("PK\x03\x04", 4)), {"a.zip: is a zip archive", "unzip"});
  EXPECT_EQ(texts_of(file_in(folder, "a.txt", "PAR1SH"), {}), (Texts{"PAR1SH"}));
}

TEST(Documents, OfTables) {
  test::TemporaryFolder folder;
  const std::string csv = "id,text\n1,\"a \"\"b\"\", c\nd\"\n2,\n3,e\n4\n";
  EXPECT_EQ(texts_of(file_in(folder, "a.csv", csv), {}),
            (Texts{"a \"b\", c\nd", "e", "[6: has 1 cells; allowed: 2, as in the first line]"}));
  EXPECT_EQ(
      texts_of(file_in(folder, "a.tsv", "x\tsentence\n1\tfine day\n"), {.column = "sentence"}),
      (Texts{"fine day"}));
  expect_parts(error_of([&] { texts_of(file_in(folder, "b.csv", csv), {.column = "body"}); }),
               {"b.csv: has no column 'body'", "allowed: 'id', 'text'"});
  EXPECT_EQ(texts_of(file_in(folder, "c.csv", csv), {.format = DocumentFormat::kText}),
            (Texts{csv}));
}

// A text with a delimiter in it that nobody quoted would lose its end.
TEST(Documents, RowsAreAsWideAsTheFirstLine) {
  test::TemporaryFolder folder;
  EXPECT_EQ(texts_of(file_in(folder, "a.csv", "text,source\nHello, world,web\nfine,web\n"), {}),
            (Texts{"[2: has 3 cells; allowed: 2, as in the first line]", "fine"}));
  EXPECT_EQ(texts_of(file_in(folder, "b.csv", "text\nHello, world\n"), {}),
            (Texts{"[2: has 2 cells; allowed: 1, as in the first line]"}));
}

TEST(Documents, ColumnsOfTheSameNameAreRefused) {
  test::TemporaryFolder folder;
  const std::string path = file_in(folder, "a.csv", "text,id,id,text\na,1,2,b\n");
  expect_parts(error_of([&] { texts_of(path, {}); }),
               {"a.csv: columns 0 and 3 (from 0) of the header are both named 'text'"});
}

TEST(Documents, ByteOrderMarksAreNoText) {
  test::TemporaryFolder folder;
  const std::string mark = "\xEF\xBB\xBF";
  EXPECT_EQ(texts_of(file_in(folder, "a.txt", mark + "one\n"), {}), Texts{"one\n"});
  EXPECT_EQ(texts_of(file_in(folder, "a.csv", mark + "text\none\n"), {}), Texts{"one"});
  EXPECT_EQ(texts_of(file_in(folder, "a.jsonl", mark + "{\"text\": \"one\"}\n"), {}), Texts{"one"});
  for (const std::string& utf16 : {std::string("\xFF\xFEt\0", 4), std::string("\xFE\xFF\0t", 4)})
    expect_parts(error_of([&] { texts_of(file_in(folder, "b.csv", utf16), {}); }),
                 {"b.csv: is UTF-16; allowed: UTF-8", "iconv"});
  // A message has no byte that ends it or moves the cursor.
  const std::string zeros("te\0,\0\n", 6);
  expect_parts(error_of([&] { texts_of(file_in(folder, "c.csv", zeros), {}); }),
               {"allowed: 'te\\x00', '\\x00'"});
}

TEST(Documents, OfFilesThatAreNotThere) {
  test::TemporaryFolder folder;
  const std::string absent = (folder.path() / "absent" / "a.txt").string();
  expect_parts(error_of([&] { DocumentReader(absent, {}); }), {absent, "No such file"});
}

template <typename T>
std::vector<T> values_of(const std::string& path) {
  const std::string bytes = read_file(path, 1 << 20);
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

TEST(TokenWriter, WritesTokensAndBorders) {
  test::TemporaryFolder folder;
  const std::string tokens = folder.path() / "t", borders = folder.path() / "b";
  const std::vector<uint32_t> ids{1, 65535, 3, 4};
  for (const uint32_t limit : {65536u, 65537u}) {
    TokenWriter writer(tokens, borders, limit);
    writer.write(ids, std::vector<uint64_t>{3, 1});
    writer.write({}, {});
    writer.write(std::vector<uint32_t>{9, 9}, std::vector<uint64_t>{2});
    writer.finish();
    EXPECT_EQ(writer.documents(), 3u);
    EXPECT_EQ(writer.tokens(), 6u);
    EXPECT_EQ(values_of<uint64_t>(borders), (std::vector<uint64_t>{0, 3, 4, 6}));
    if (limit == 65536)
      EXPECT_EQ(values_of<uint16_t>(tokens), (std::vector<uint16_t>{1, 65535, 3, 4, 9, 9}));
    else
      EXPECT_EQ(values_of<uint32_t>(tokens), (std::vector<uint32_t>{1, 65535, 3, 4, 9, 9}));
  }
}

}  // namespace
}  // namespace lockstep::data
