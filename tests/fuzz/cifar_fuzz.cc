// CIFAR files: finds reads outside the file, and files of a wrong length that are accepted.

#include "fuzz_target.h"
#include "runtime/data/images/cifar.h"

namespace lockstep::fuzz {

// The first byte chooses between CIFAR-10 and CIFAR-100.
std::vector<std::string> seed_inputs() {
  return {std::string(1 + 3073, '\x02'),
          std::string(1 + 2 * 3073, '\0'),
          std::string(1 + 3074, '\x01'),
          std::string(1 + 3073, '\x09')};
}

}  // namespace lockstep::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  if (size == 0) return 0;
  const data::CifarLayout layout =
      data[0] % 2 == 0 ? data::CifarLayout{1, 0, 10} : data::CifarLayout{2, 1, 100};
  // A copy of just that size, so that reads past its end are found.
  const std::vector<std::byte> file(reinterpret_cast<const std::byte*>(data + 1),
                                    reinterpret_cast<const std::byte*>(data + size));
  fuzz::expect_errors_only([&] {
    const int64_t records = data::count_cifar_records(file, layout, "input");
    if (static_cast<size_t>(records) * layout.record_bytes() != file.size())
      fuzz::fail("bytes are left over");
    std::vector<std::byte> pixels(3072);
    for (int64_t i = 0; i < records; ++i) {
      const int32_t label = data::cifar_label(file, layout, i);
      if (label < 0 || label > 255) fuzz::fail("a label is no byte");
      data::read_cifar_pixels(file, layout, i, pixels.data());
    }
  });
  return 0;
}
