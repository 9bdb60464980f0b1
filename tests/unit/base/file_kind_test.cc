// Files under a wrong name. Catches a format that the messages cannot name, and text that is taken
// for a binary format.
#include "runtime/base/file_kind.h"
#include "runtime/base/table_names.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace lockstep {
namespace {

using std::string_view_literals::operator""sv;

TEST(FileKind, IsFoundByTheFirstBytes) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"RIFF\x10\0\0\0WEBPVP8 "sv, "webp"},
      {"GIF89a\1\0"sv, "gif"},
      {"BM\x46\0\0\0\0\0\0\0\x36\0\0\0"sv, "bmp"},
      {"II*\0\x08\0\0\0"sv, "tiff"},
      {"MM\0*\0\0\0\x08"sv, "tiff"},
      {"\0\0\0\x1C"
       "ftypavif\0\0\0\0"sv,
       "avif"},
      {"<!DOCTYPE html><html>", "html"},
      {"\xEF\xBB\xBF \r\n<HTML lang=en>", "html"},
      {"<?xml version='1.0'?><data/>", "xml"},
      {"\x1F\x8B\x08", "gzip"},
      {"\x93NUMPY\1\0"sv, "npy"},
      {"\x40\0\0\0\0\0\0\0{\"a\""sv, "safetensors"},
      {"version https://git-lfs.github.com/spec/v1\noid", "lfs"},
      {"\xFF\xFE"
       "a\0"sv,
       "utf16"},
      {"\xFF\xFE\0\0a\0\0\0"sv, "utf32"},
      {"\x80\x03}q", "pickle"},
      {"<svg xmlns='http://www.w3.org/2000/svg'>", "svg"},
      {"<?xml version='1.0'?>\n<svg>", "svg"},
      {"<Error><Code>AccessDenied</Code></Error>", "xml"},
      {"PK\x03\x04\x14\0"sv, "zip"},
      {"\x80\x02\x8A\nl\xFC\x9C\x46\xF9\x20\x6A\xA8P\x19."sv, "torch"},
      {"\x08\x08\x12\x07pytorch", "onnx"},
      {"GGUF\3\0\0\0"sv, "gguf"},
      {"\0\0\0\0\0\0\0\0"sv, "zeros"},
  };
  for (const auto& [bytes, id] : cases) EXPECT_EQ(file_kind(bytes).id, id);
}

// The beginning of a zip archive whose first member has this name.
std::string zip_of(const std::string& name) {
  return "PK\x03\x04" + std::string(22, '\0') + static_cast<char>(name.size()) +
         std::string(3, '\0') + name + "content";
}

TEST(FileKind, OfAZipArchiveIsFoundByItsFirstMember) {
  for (const auto& [name, id] : {std::pair("x.npy", "npz"),
                                 {"model/data.pkl", "torch"},
                                 {"model/data/0", "torch"},
                                 {"xl/workbook.xml", "xlsx"},
                                 {"[Content_Types].xml", "xlsx"},
                                 {"data/cat.jpg", "zip"}})
    EXPECT_EQ(file_kind(zip_of(name)).id, id) << name;
}

TEST(FileKind, IsUnknownForText) {
  for (const std::string_view text : {"",
                                      "a,b\n1,2\n",
                                      "{\"a\": 1}",
                                      "BMW,1\n",
                                      "II,MM\n",
                                      "B",
                                      "GGUF is a format",
                                      "model { mlp {} }"})
    EXPECT_FALSE(file_kind(text)) << text;
}

TEST(FileKind, IsNamedInMessages) {
  EXPECT_EQ(is_not("%PDF-1.7", "an ONNX model"), "is a PDF document, not an ONNX model");
  EXPECT_EQ(is_not("\1\2\3", "an ONNX model"), "is not an ONNX model");
  EXPECT_EQ(is_not("", "an ONNX model"), "is empty, not an ONNX model");
  EXPECT_EQ(is_not("404: Not Found\n", "an ONNX model"),
            "is text that begins with '404: Not Found', not an ONNX model");
  EXPECT_EQ(is_not("{\"error\": \"no such file\"}", "a JPEG or PNG image"),
            "is JSON that begins with '{\"error\": \"no such file\"}', not a JPEG or PNG image");
  EXPECT_EQ(is_not("BZh91AY&SY", "a table"),
            "is a bzip2 file, not a table; to unpack it: bzip2 -d FILE");
}

TEST(FileKind, TablesAreKnownByTheirEndings) {
  for (const auto& [name, reader] : {std::pair("a.parquet", "pandas.read_parquet("),
                                     {"x/b.XLSX", "pandas.read_excel("},
                                     {"c.h5", "pandas.read_hdf("},
                                     {"d.feather", "pandas.read_feather("}})
    EXPECT_NE(conversion_by_name(name, TableForm::kCsv).find(reader), std::string::npos) << name;
  EXPECT_EQ(conversion_by_name("parquet.csv", TableForm::kCsv), "");
}

// Catches a conversion to a format that the source does not read.
TEST(FileKind, TablesBecomeWhatIsWanted) {
  const auto of_parquet = [](TableForm form) { return is_not("PAR1 x", "what is wanted", form); };
  EXPECT_EQ(
      of_parquet(TableForm::kJsonLines),
      "is a Parquet file, not what is wanted; to convert it: python3 -c \"import pandas, sys; "
      "pandas.read_parquet(sys.argv[1]).to_json(sys.argv[2], orient='records', lines=True)\" "
      "FILE FILE.jsonl");
  for (const auto& [form, part] : {std::pair(TableForm::kCsv, ".to_csv("),
                                   {TableForm::kNpy, "numpy.save(sys.argv[2], pandas.read_parquet"},
                                   {TableForm::kImages, "r['image']['bytes']"}})
    EXPECT_NE(of_parquet(form).find(part), std::string::npos) << of_parquet(form);
  for (const auto& [begin, reader] :
       {std::pair(std::string("ARROW1"), "pandas.read_feather"),
        {std::string("\xFF\xFF\xFF\xFF\x10\x01\0\0", 8), "pyarrow.ipc.open_stream"},
        {std::string("\x89HDF\r\n\x1a\n"), "pandas.read_hdf"},
        {zip_of("xl/workbook.xml"), "pandas.read_excel"}})
    EXPECT_NE(is_not(begin, "a table").find(reader), std::string::npos) << is_not(begin, "a table");
}

}  // namespace
}  // namespace lockstep
