// IDX files and the gzip layer: finds reads outside the file, sizes that are believed, and inputs
// that end in anything but a DataError.

#include "fuzz_target.h"
#include "runtime/data/images/idx.h"
#include "runtime/data/source_file.h"

namespace lockstep::fuzz {

std::vector<std::string> seed_inputs() {
  using namespace std::string_literals;
  return {
      "\0\0\x08\x03\0\0\0\x02\0\0\0\x02\0\0\0\x03"
      "abcdefghijkl"s,
      "\0\0\x08\x01\0\0\0\x05\0\x01\x02\x03\x04"s,
      // The second, compressed by gzip, and a compressed "a".
      "\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\x63\x60\xe0\x60\x64\x60\x60\x60\x65\x60\x64\x62\x66\x01\x00\x9b\x79\xc0\x9d\x0d\x00\x00\x00"s,
      "\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\x4b\x04\x00\x43\xbe\xb7\xe8\x01\x00\x00\x00"s,
  };
}

}  // namespace lockstep::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  const auto bytes = std::as_bytes(std::span(data, size));
  fuzz::expect_errors_only([&] {
    std::vector<std::byte> unpacked;
    if (data::is_gzip(bytes)) unpacked = data::gunzip(bytes, "input");
    const auto content = data::is_gzip(bytes) ? std::span<const std::byte>(unpacked) : bytes;
    const data::IdxArray array = data::parse_idx(content, 1, 4, "input");
    size_t elements = 1;
    for (int64_t extent : array.extents) elements *= static_cast<size_t>(extent);
    if (elements != array.values.size()) fuzz::fail("the values do not fill the extents");
    if (array.values.data() + array.values.size() != content.data() + content.size())
      fuzz::fail("the values do not end with the file");
  });
  return 0;
}
