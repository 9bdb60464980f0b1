#include "runtime/base/file_kind.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <fstream>

#include "runtime/base/text.h"

namespace lockstep {
namespace {

using std::string_view_literals::operator""sv;

constexpr std::string_view kPillow =
    "to convert it: python3 -c \"import sys; from PIL import Image; "
    "Image.open(sys.argv[1]).convert('RGB').save(sys.argv[2])\" FILE FILE.png";
// Readers of tables.
constexpr std::string_view kParquet = "pandas.read_parquet(sys.argv[1])";
constexpr std::string_view kFeather = "pandas.read_feather(sys.argv[1])";
constexpr std::string_view kArrowStream = "pyarrow.ipc.open_stream(sys.argv[1]).read_pandas()";
constexpr std::string_view kOrc = "pandas.read_orc(sys.argv[1])";
constexpr std::string_view kHdf5 = "pandas.read_hdf(sys.argv[1])";
constexpr std::string_view kExcel = "pandas.read_excel(sys.argv[1])";
constexpr std::string_view kWebPage =
    "the download failed or needs a login; fetch the file itself again";
constexpr std::string_view kTorch =
    "to convert it: python3 -c \"import sys, torch; from safetensors.torch import save_file; "
    "save_file(torch.load(sys.argv[1], map_location='cpu'), sys.argv[2])\" FILE FILE.safetensors";
constexpr std::string_view kNpz =
    "to take the array NAME out of it: python3 -c \"import numpy, sys; "
    "numpy.save(sys.argv[2], numpy.load(sys.argv[1])['NAME'])\" FILE FILE.npy";

// A kind of file: the bytes at its beginning, and optionally others at an offset. The first row
// that fits decides.
struct Signature {
  FileKind kind;
  std::string_view begin;
  size_t offset = 0;  // of `then`
  std::string_view then = {};
};

constexpr std::array kSignatures = {
    Signature{{"lfs",
               "a pointer of Git LFS",
               "run `git lfs pull` in its folder to fetch the file itself"},
              "version https://git-lfs.github.com/spec/"},
    Signature{{"jpeg", "a JPEG image", ""}, "\xFF\xD8\xFF"},
    Signature{{"png", "a PNG image", ""}, "\x89PNG\r\n\x1a\n"},
    Signature{{"gif", "a GIF image", kPillow}, "GIF8"},
    Signature{{"webp", "a WebP image", kPillow}, "RIFF", 8, "WEBP"},
    Signature{{"bmp", "a BMP image", kPillow}, "BM", 6, "\0\0\0\0"sv},
    Signature{{"tiff", "a TIFF image", kPillow}, "II*\0"sv},
    Signature{{"tiff", "a TIFF image", kPillow}, "MM\0*"sv},
    Signature{{"tiff", "a TIFF image", kPillow}, "II+\0"sv},
    Signature{{"tiff", "a TIFF image", kPillow}, "MM\0+"sv},
    Signature{{"avif", "an AVIF image", kPillow}, "", 4, "ftypavif"},
    Signature{{"avif", "an AVIF image", kPillow}, "", 4, "ftypavis"},
    Signature{{"heic", "a HEIC image", kPillow}, "", 4, "ftyphei"},
    Signature{{"heic", "a HEIC image", kPillow}, "", 4, "ftypmif1"},
    Signature{{"heic", "a HEIC image", kPillow}, "", 4, "ftyphev"},
    Signature{{"jxl", "a JPEG XL image", kPillow}, "\0\0\0\x0CJXL "sv},
    Signature{{"jxl", "a JPEG XL image", kPillow}, "\xFF\x0A"},
    Signature{{"jp2", "a JPEG 2000 image", kPillow}, "\0\0\0\x0CjP  "sv},
    Signature{{"ico", "a Windows icon", kPillow}, "\0\0\1\0"sv},
    Signature{{"mp4", "an MP4 video", ""}, "", 4, "ftyp"},
    Signature{{"wav", "a WAV sound", ""}, "RIFF", 8, "WAVE"},
    Signature{{"avi", "an AVI video", ""}, "RIFF", 8, "AVI "},
    Signature{{"pdf", "a PDF document", ""}, "%PDF-"},
    Signature{{"gzip", "gzip-compressed", "to unpack it: gzip -d FILE.gz"}, "\x1F\x8B"},
    Signature{{"zstd", "a Zstandard file", "to unpack it: zstd -d FILE"}, "\x28\xB5\x2F\xFD"},
    Signature{{"xz", "an xz file", "to unpack it: xz -d FILE"}, "\xFD\x37zXZ\0"sv},
    Signature{{"bzip2", "a bzip2 file", "to unpack it: bzip2 -d FILE"}, "BZh", 4, "1AY&SY"},
    Signature{{"lz4", "an LZ4 file", "to unpack it: lz4 -d FILE"}, "\x04\x22\x4D\x18"},
    Signature{{"7z", "a 7-Zip archive", "to unpack it: 7z x FILE"}, "7z\xBC\xAF\x27\x1C"},
    Signature{{"rar", "a RAR archive", "to unpack it: unrar x FILE"}, "Rar!\x1A\x07"},
    Signature{
        {"xlsx", "an Excel or Word file", "", kExcel}, "PK\x03\x04", 30, "[Content_Types].xml"},
    Signature{{"xlsx", "an Excel or Word file", "", kExcel}, "PK\x03\x04", 30, "docProps/"},
    Signature{{"xlsx", "an Excel file", "", kExcel}, "PK\x03\x04", 30, "xl/"},
    Signature{{"xls", "an old Excel or Word file", "", kExcel}, "\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1"},
    Signature{{"zip", "an empty zip archive", ""}, "PK\x05\x06"},
    Signature{{"tar", "a tar archive", "to unpack it: tar xf FILE"}, "", 257, "ustar"},
    Signature{{"parquet", "a Parquet file", "", kParquet}, "PAR1"},
    Signature{{"arrow", "an Arrow file", "", kFeather}, "ARROW1"},
    Signature{
        {"arrow_stream", "an Arrow stream", "", kArrowStream}, "\xFF\xFF\xFF\xFF", 6, "\0\0"sv},
    Signature{{"orc", "an ORC file", "", kOrc}, "ORC\n"},
    Signature{{"npy", "a NumPy array (.npy)", ""}, "\x93NUMPY"},
    Signature{{"hdf5", "an HDF5 file", "", kHdf5}, "\x89HDF\r\n\x1a\n"},
    Signature{{"gguf", "a GGUF file", ""}, "GGUF", 5, "\0\0\0"sv},
    Signature{{"matlab", "a MATLAB file", ""}, "MATLAB 5.0 MAT-file"},
    Signature{{"sqlite", "an SQLite database", ""}, "SQLite format 3\0"sv},
    Signature{{"elf", "a program or library (ELF)", ""},
              "\x7F"
              "ELF"},
    Signature{{"applefile", "a file of macOS's attributes (AppleDouble)", ""}, "\0\5\x16\7"sv},
    Signature{{"onnx", "an ONNX file", ""}, "\x08", 2, "\x12"},
    Signature{{"torch", "an old PyTorch file", kTorch},
              "\x80\x02\x8A\nl\xFC\x9C\x46\xF9\x20\x6A\xA8"},
    Signature{{"pickle", "a Python pickle", ""}, "\x80", 2, "\x95"},
    Signature{{"pickle", "a Python pickle", ""}, "\x80\x02"},
    Signature{{"pickle", "a Python pickle", ""}, "\x80\x03"},
    Signature{{"utf32", "UTF-32 text", "to convert it: iconv -f UTF-32 -t UTF-8 FILE"},
              "\xFF\xFE\0\0"sv},
    Signature{{"utf32", "UTF-32 text", "to convert it: iconv -f UTF-32 -t UTF-8 FILE"},
              "\0\0\xFE\xFF"sv},
    Signature{{"utf16", "UTF-16 text", "to convert it: iconv -f UTF-16 -t UTF-8 FILE"}, "\xFF\xFE"},
    Signature{{"utf16", "UTF-16 text", "to convert it: iconv -f UTF-16 -t UTF-8 FILE"}, "\xFE\xFF"},
};

constexpr FileKind kSafetensors = {"safetensors", "a safetensors file", ""};
constexpr FileKind kTorchZip = {"torch", "a PyTorch file", kTorch};
constexpr FileKind kNumpyZip = {"npz", "a NumPy archive (.npz)", kNpz};
constexpr FileKind kZip = {"zip", "a zip archive", "to unpack it: unzip FILE"};
constexpr FileKind kZeros = {"zeros", "a file of zero bytes", "copy or fetch it again"};
constexpr FileKind kHtml = {"html", "a web page (HTML)", kWebPage};
constexpr FileKind kXml = {"xml", "an XML document", ""};
constexpr FileKind kSvg = {
    "svg", "an SVG drawing", "draw it to pixels: rsvg-convert FILE -o FILE.png"};

bool fits(const Signature& signature, std::string_view begin) {
  if (!begin.starts_with(signature.begin)) return false;
  if (signature.then.empty()) return true;
  return begin.size() >= signature.offset &&
         begin.substr(signature.offset).starts_with(signature.then);
}

// Whether a text begins with `word`, in upper or lower case. `word` is in lower case.
bool begins_with_word(std::string_view text, std::string_view word) {
  return text.size() >= word.size() &&
         std::equal(word.begin(), word.end(), text.begin(), [](char a, char b) {
           return a == (b >= 'A' && b <= 'Z' ? b - 'A' + 'a' : b);
         });
}

std::string_view without_leading_space(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  return text;
}

FileKind text_kind(std::string_view begin) {
  const std::string_view text = without_leading_space(without_byte_order_mark(begin));
  for (const std::string_view tag : {"<!doctype html", "<html", "<head", "<body"})
    if (begins_with_word(text, tag)) return kHtml;
  if (begins_with_word(text, "<svg")) return kSvg;
  if (begins_with_word(text, "<error>")) return kXml;  // of a cloud's storage
  if (begins_with_word(text, "<?xml")) {
    if (text.find("<svg") != std::string_view::npos) return kSvg;
    return text.find("<html") == std::string_view::npos ? kXml : kHtml;
  }
  return {};
}

// What a zip archive is by the name of its first member, which follows 30 bytes.
FileKind zip_kind(std::string_view begin) {
  constexpr size_t kLengthAt = 26, kNameAt = 30;
  if (begin.size() < kNameAt) return kZip;
  const auto length = static_cast<unsigned char>(begin[kLengthAt]);
  const std::string_view name = begin.substr(kNameAt, length);
  const size_t slash = name.find('/');
  const std::string_view below =
      slash == std::string_view::npos ? std::string_view{} : name.substr(slash + 1);
  for (const std::string_view part : {"data.pkl", "data/0", "version", "byteorder", "code/"})
    if (below.starts_with(part)) return kTorchZip;
  return name.ends_with(".npy") ? kNumpyZip : kZip;
}

bool only_zeros(std::string_view bytes) {
  return !bytes.empty() && bytes.find_first_not_of('\0') == std::string_view::npos;
}

// A few words of a text, in quotes.
std::string excerpt(std::string_view text) {
  constexpr size_t kMaxBytes = 40;
  text = without_leading_space(text);
  text = text.substr(0, text.find_first_of("\r\n"));
  if (text.size() <= kMaxBytes) return fmt::format("'{}'", text);
  size_t size = kMaxBytes;
  while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xC0) == 0x80) --size;
  return fmt::format("'{}...'", text.substr(0, size));
}

}  // namespace

FileKind file_kind(std::string_view begin) {
  begin = begin.substr(0, kFileKindBytes);
  // Eight bytes with the length of a JSON text, then the text. A length may look like another kind.
  if (begin.size() > 9 && begin.substr(5, 3) == "\0\0\0"sv && begin.substr(8, 2) == "{\"")
    return kSafetensors;
  for (const Signature& signature : kSignatures)
    if (fits(signature, begin)) return signature.kind;
  if (begin.starts_with("PK\x03\x04")) return zip_kind(begin);
  if (only_zeros(begin)) return kZeros;
  return text_kind(begin);
}

FileKind file_kind(std::span<const std::byte> begin) {
  return file_kind(std::string_view(reinterpret_cast<const char*>(begin.data()), begin.size()));
}

bool is_json(std::string_view begin) {
  std::string_view text = without_leading_space(without_byte_order_mark(begin));
  if (!text.starts_with('{') && !text.starts_with('[')) return false;
  const bool object = text.front() == '{';
  text = without_leading_space(text.substr(1));
  return text.starts_with('"') || text.starts_with(object ? '}' : '{');
}

bool is_text(std::string_view begin) {
  const bool cut = begin.size() > kFileKindBytes;
  begin = begin.substr(0, kFileKindBytes);
  if (begin.empty()) return false;
  for (std::string_view rest = begin; !rest.empty();) {
    utf8proc_int32_t code = 0;
    const utf8proc_ssize_t length =
        utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(rest.data()),
                         static_cast<utf8proc_ssize_t>(rest.size()),
                         &code);
    constexpr size_t kMaxCharacterBytes = 4;
    if (length <= 0) return cut && rest.size() < kMaxCharacterBytes;
    const bool control = (code < 0x20 && code != '\n' && code != '\r' && code != '\t') ||
                         (code >= 0x7F && code < 0xA0);
    if (control) return false;
    rest.remove_prefix(static_cast<size_t>(length));
  }
  return true;
}

std::string_view utf16_name(std::string_view text) {
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF")) return "UTF-16";
  const auto zero = [&](size_t i) { return text[i] == '\0'; };
  if (text.size() < 4) return "";
  if (!zero(0) && zero(1) && !zero(2) && zero(3)) return "UTF-16LE";
  return zero(0) && !zero(1) && zero(2) && !zero(3) ? "UTF-16BE" : "";
}

std::string begin_of_file(const std::string& path) {
  std::string begin(kFileKindBytes, '\0');
  std::ifstream in(path, std::ios::binary);
  in.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  begin.resize(static_cast<size_t>(in.gcount()));
  return begin;
}

std::string conversion_of_table(std::string_view reader, TableForm form) {
  std::string_view modules = "pandas, sys", write, result;
  switch (form) {
    case TableForm::kJsonLines:
      write = ".to_json(sys.argv[2], orient='records', lines=True)";
      result = "FILE.jsonl";
      break;
    case TableForm::kCsv:
      write = ".to_csv(sys.argv[2], index=False)";
      result = "FILE.csv";
      break;
    case TableForm::kNpy:
      return fmt::format(
          "to convert it: python3 -c \"import numpy, pandas, sys; numpy.save(sys.argv[2], "
          "{}.to_numpy('float32'))\" FILE FILE.npy",
          reader);
    case TableForm::kImages:
      return fmt::format(
          "to make a folder for each class of a table of images (columns image and label): python3 "
          "-c \"import pandas, pathlib, sys; [(f.mkdir(parents=True, exist_ok=True), (f / "
          "f'{{i}}.png').write_bytes(r['image']['bytes'])) for i, r in {}.iterrows() for f in "
          "[pathlib.Path(sys.argv[2], str(r['label']))]]\" FILE FOLDER",
          reader);
  }
  if (reader.starts_with("pyarrow")) modules = "pyarrow, sys";
  return fmt::format(
      "to convert it: python3 -c \"import {}; {}{}\" FILE {}", modules, reader, write, result);
}

std::string is_not(std::string_view begin, std::string_view wanted, TableForm form) {
  const FileKind kind = file_kind(begin);
  if (begin.empty()) return fmt::format("is empty, not {}", wanted);
  if (!kind && is_text(begin))
    return fmt::format("is {} that begins with {}, not {}",
                       is_json(begin) ? "JSON" : "text",
                       excerpt(begin),
                       wanted);
  if (!kind) return fmt::format("is not {}", wanted);
  std::string text = fmt::format("is {}, not {}", kind.name, wanted);
  if (!kind.remedy.empty()) text += fmt::format("; {}", kind.remedy);
  if (!kind.table.empty()) text += fmt::format("; {}", conversion_of_table(kind.table, form));
  return text;
}

std::string is_not(std::span<const std::byte> begin, std::string_view wanted, TableForm form) {
  return is_not(
      std::string_view(reinterpret_cast<const char*>(begin.data()), begin.size()), wanted, form);
}

}  // namespace lockstep
