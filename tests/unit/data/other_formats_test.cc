// Files of another format under the name of a data file. Catches one that is read as data, and one
// that is refused without a word about what it is.

#include <gtest/gtest.h>

#include "files.h"
#include "runtime/data/images/cifar.h"
#include "runtime/data/images/idx.h"
#include "runtime/data/images/image_decoder.h"
#include "runtime/data/images/npy_array.h"
#include "runtime/data/images/record_file.h"
#include "runtime/data/images/tar.h"
#include "runtime/data/source_file.h"

namespace lockstep::data {
namespace {

using test::bytes_of;
using test::error_of;
using test::expect_parts;

const std::string kHtml = "<!DOCTYPE html><html><body>404</body></html>";
const std::string kWebp("RIFF\x10\0\0\0WEBPVP8 ", 16);

// The beginning of a zip archive whose first member has this name.
std::string zip_of(const std::string& name) {
  return "PK\x03\x04" + std::string(22, '\0') + static_cast<char>(name.size()) +
         std::string(3, '\0') + name + "content";
}

TEST(OtherFormats, AreNamedByEveryReader) {
  const std::pair<const char*, std::function<void(const std::string&)>> readers[] = {
      {"image", [](const std::string& file) { ImageDecoder().open(bytes_of(file)); }},
      {"idx", [](const std::string& file) { parse_idx(bytes_of(file), 1, 4, "f"); }},
      {"npy", [](const std::string& file) { parse_npy(bytes_of(file), "f"); }},
      {"cifar",
       [](const std::string& file) { count_cifar_records(bytes_of(file), CifarLayout{}, "f"); }},
      {"records", [](const std::string& file) { parse_record_file(bytes_of(file), "f"); }},
      {"tar",
       [](const std::string& file) {
         TarMember member;
         TarReader(bytes_of(file), "f").next(&member);
       }},
      {"table", [](const std::string& file) { refuse_other_than_table(bytes_of(file), "f"); }},
      {"lines", [](const std::string& file) { text_in(bytes_of(file), "f"); }},
  };
  const std::pair<std::string, const char*> files[] = {
      {kHtml, "is a web page (HTML), not "},
      {kWebp, "is a WebP image, not "},
      {zip_of("cat.jpg"), "is a zip archive, not "},
      {zip_of("net/data.pkl"), "is a PyTorch file, not "},
      {"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"},
  };
  for (const auto& [reader, read] : readers)
    for (const auto& [file, words] : files)
      EXPECT_NE(error_of([&] { read(file); }).find(words), std::string::npos)
          << reader << ": " << error_of([&] { read(file); });
}

TEST(OtherFormats, ImagesAreNamedWithAWayToConvertThem) {
  const auto error = [](const std::string& file) {
    return error_of([&] { ImageDecoder().open(bytes_of(file)); });
  };
  expect_parts(error("GIF89a"), {"is a GIF image, not a JPEG or PNG image", "PIL"});
  expect_parts(error(std::string("BM\x46\0\0\0\0\0\0\0", 10)), {"is a BMP image"});
  expect_parts(error(std::string("II*\0", 4)), {"is a TIFF image"});
  expect_parts(error(std::string(64, '\0')), {"is a file of zero bytes", "again"});
  expect_parts(error("404: Not Found"), {"is text that begins with '404: Not Found'"});
  expect_parts(error("{\"error\": 1}"), {"is JSON that begins with"});
  expect_parts(error(std::string("\0\5\x16\7 ", 5)), {"macOS's attributes"});
}

TEST(OtherFormats, ATableIsToldHowToBecomeOne) {
  const auto error = [](const std::string& file) {
    return error_of([&] { refuse_other_than_table(bytes_of(file), "t.csv"); });
  };
  expect_parts(error("PAR1 columns PAR1"), {"t.csv: is a Parquet file", "read_parquet", "to_csv"});
  expect_parts(error(zip_of("xl/workbook.xml")), {"is an Excel file", "read_excel"});
  expect_parts(error("[{\"a\": 1}]"), {"is JSON", "read_json"});
  expect_parts(error("{\"a\": 1}\n{\"a\": 2}\n"), {"is JSON", "lines="});
  for (const char* table : {"a,b\n1,2\n", "PAR1,b\n", "\"a\",b\n", "[a],b\n", "{x},y\n"})
    EXPECT_EQ(error(table), "no error") << table;
}

// A web page can be the text that is wanted.
TEST(OtherFormats, AWebPageIsTextButHasNoRows) {
  EXPECT_EQ(error_of([] { refuse_other_formats(bytes_of(kHtml), "f"); }), "no error");
  EXPECT_EQ(text_in(bytes_of(kHtml), "f", /*rows=*/false), kHtml);
  expect_parts(error_of([] { text_in(bytes_of(kHtml), "f"); }), {"is a web page"});
}

TEST(OtherFormats, ATruncatedGzipFileIsToBeFetchedAgain) {
  const std::string whole = test::gzip(std::string(5000, 'x'));
  expect_parts(error_of([&] { gunzip(bytes_of(whole.substr(0, whole.size() / 2)), "f.gz"); }),
               {"f.gz", "truncated", "again"});
}

}  // namespace
}  // namespace lockstep::data
