// Files under a wrong name. Catches a format that the messages cannot name, and text that is taken
// for a binary format.
#include "runtime/base/file_kind.h"

#include <gtest/gtest.h>

#include <string>

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

}  // namespace
}  // namespace lockstep
