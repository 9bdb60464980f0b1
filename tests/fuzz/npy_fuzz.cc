// NumPy's .npy files: finds reads outside the file, headers that are believed, and inputs that end
// in anything but a DataError.

#include "fuzz_target.h"
#include "runtime/data/images/npy_array.h"

namespace lockstep::fuzz {

std::vector<std::string> seed_inputs() {
  using namespace std::string_literals;
  const std::string header = "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3), }  \n";
  const std::string column = "{'descr': '<i8', 'fortran_order': False, 'shape': (1,), }\n";
  const auto length = [](const std::string& text) { return std::string(1, char(text.size())); };
  return {"\x93NUMPY\x01\0"s + length(header) + "\0"s + header + "abcdef",
          "\x93NUMPY\x03\0"s + length(column) + "\0\0\0"s + column + "abcdefgh",
          "\x93NUMPY\x02\0\xff\xff\xff\xff"s + header};
}

}  // namespace lockstep::fuzz

namespace {

size_t element_bytes(lockstep::data::NpyType type) {
  switch (type) {
    case lockstep::data::NpyType::kBool:
    case lockstep::data::NpyType::kUint8: return 1;
    case lockstep::data::NpyType::kInt64: return 8;
    default: return 4;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  const auto bytes = std::as_bytes(std::span(data, size));
  fuzz::expect_errors_only([&] {
    const data::NpyArray array = data::parse_npy(bytes, "input");
    size_t elements = 1;
    for (int64_t extent : array.extents) elements *= static_cast<size_t>(extent);
    if (elements * element_bytes(array.type) != array.values.size())
      fuzz::fail("the values do not fill the extents");
    if (array.values.data() + array.values.size() != bytes.data() + bytes.size())
      fuzz::fail("the values do not end with the file");
  });
  return 0;
}
