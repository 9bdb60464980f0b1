// Catches: a map or codes that are not those of bitsandbytes, codes of values that are not the
// nearest, updates of moments in blocks with other bits than decoding, updating and encoding them
// one by one, bits that depend on where a slice is cut, and sums of other bits than are stored.

#include "runtime/base/moment_block.h"

#include <cmath>
#include <cstring>
#include <numeric>

#include "runtime/cpu/flat/optimizers.h"
#include "tests/reference/kernel_test.h"
#include "tests/reference/optimizers.h"

namespace lockstep::test {
namespace {

uint32_t bits_of_values(const MomentMap& map) {
  uint32_t bits = 0;
  for (const float value : map.values) bits += std::bit_cast<uint32_t>(value);
  return bits;
}

// The maps are those of create_dynamic_map() of bitsandbytes 0.50.2. Codes are the nearest in them,
// computed by torch.searchsorted on the middles, as by its CUDA kernels; its kernels for CPUs are
// less exact near 0.
TEST(MomentBlock, IsBitsandbytes) {
  EXPECT_EQ(bits_of_values(kSignedMoments), 0xa2c2ce84u);
  EXPECT_EQ(bits_of_values(kUnsignedMoments), 0x2267af98u);
  EXPECT_EQ(kSignedMoments.zero, 127);
  EXPECT_EQ(kUnsignedMoments.zero, 0);
  std::vector<float> x(kMomentBlock), squares(kMomentBlock);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>(std::pow(std::sin(0.37 * static_cast<double>(i)), 3) * 0.01);
    squares[i] = x[i] * x[i];
  }
  const auto check = [](const MomentMap& map,
                        const std::vector<float>& values,
                        const std::vector<int>& first,
                        int sum,
                        int weighted) {
    MomentBlock block;
    encode_moments(map, values.data(), block);
    EXPECT_EQ(std::vector<int>(block.codes, block.codes + first.size()), first);
    EXPECT_EQ(std::accumulate(block.codes, block.codes + kMomentBlock, 0), sum);
    int product = 0;
    for (int i = 0; i < kMomentBlock; ++i) product += (i + 1) * block.codes[i];
    EXPECT_EQ(product, weighted);
    EXPECT_EQ(block.scale,
              std::abs(*std::ranges::max_element(values, {}, [](float v) { return std::abs(v); })));
  };
  check(kSignedMoments,
        x,
        {127, 172, 205, 234, 254, 247, 219, 194, 151, 102, 60, 34, 7, 1, 20, 49},
        32593,
        4109643);
  check(kUnsignedMoments,
        squares,
        {0, 35, 122, 186, 251, 224, 149, 70, 9, 9, 71, 150, 226, 250, 184, 119},
        31283,
        4011574);
}

TEST(MomentBlock, CodesAreNearest) {
  for (const MomentMap* map : {&kSignedMoments, &kUnsignedMoments}) {
    for (int i = map == &kSignedMoments ? -5000 : 0; i <= 5000; ++i) {
      const float x = std::pow(static_cast<float>(std::abs(i)) / 5000, 3.0f) * (i < 0 ? -1 : 1);
      const int code = moment_code(*map, x);
      float nearest = 2;
      for (const float value : map->values) nearest = std::min(nearest, std::abs(x - value));
      if (x < 0 && std::abs(x) < map->values[128] / 2) {
        EXPECT_EQ(code, 126) << x;  // not 0
      } else {
        EXPECT_LE(std::abs(x - map->values[code]), nearest * (1 + 1e-6f) + 1e-12f) << x;
      }
    }
  }
}

// Without momentum, the moment becomes the gradient. Catches: a table or a vector that completes a
// code with the wrong comparison, or decodes one with another rounding.
TEST(MomentBlock, UpdatesHaveTheCodesOfASearch) {
  const exec::SgdUpdate copies = {
      .lr = 1, .momentum = 0, .weight_decay = 0, .grad_scale = 1, .nesterov = false};
  for (const bool squares : {false, true}) {
    const MomentMap& map = moment_map(squares);
    std::vector<float> values;
    for (int i = 0; i < 255; ++i) {
      for (const float x : {map.values[i], map.middles[i]})
        for (const float end : {-2.0f, x, 2.0f}) values.push_back(std::nextafter(x, end));
    }
    for (uint32_t bits = 0; bits < 0x3f800000u; bits += 7919) {
      values.push_back(std::bit_cast<float>(bits));
      if (!squares) values.push_back(-values.back());
    }
    if (squares) std::erase_if(values, [](float x) { return x < 0; });
    values.push_back(std::nanf(""));
    const size_t blocks = values.size() / (kMomentBlock - 1) + 1;
    std::vector<float> p(blocks * kMomentBlock), g = p;
    for (size_t i = 0; i < g.size(); ++i) {
      const size_t from = i / kMomentBlock * (kMomentBlock - 1) + i % kMomentBlock;
      g[i] = i % kMomentBlock == kMomentBlock - 1 ? 1  // the scale
             : from < values.size()               ? values[from]
                                                  : 0;
    }
    test::for_each_target([&](const std::string& target) {
      std::vector<MomentBlock> moments(blocks);
      exec::OptimizerSlice slice = {.elements = static_cast<int64_t>(p.size()),
                                    .parameters = p.data(),
                                    .gradients = g.data(),
                                    .moments = {moments.data()},
                                    .moment_dtype = DType::kU8,
                                    .square_moments = static_cast<uint8_t>(squares ? 1 : 0)};
      cpu::optimizer_update(copies, slice);
      for (size_t b = 0; b < blocks; ++b) {
        MomentBlock searched;
        encode_moments(map, g.data() + b * kMomentBlock, searched);
        ASSERT_EQ(std::memcmp(&searched, &moments[b], sizeof(MomentBlock)), 0) << target << b;
      }
    });
  }
}

// Catches: vectors that decode a code with another rounding.
TEST(MomentBlock, EveryCodeIsDecodedByAllTargets) {
  const exec::SgdUpdate keeps = {
      .lr = 1, .momentum = 1, .weight_decay = 0, .grad_scale = 1, .nesterov = false};
  for (const bool squares : {false, true}) {
    MomentBlock block;
    std::iota(block.codes, block.codes + kMomentBlock, uint8_t{0});
    block.scale = 0.7f;
    float values[kMomentBlock];
    decode_moments(moment_map(squares), block, values);
    test::for_each_target([&](const std::string& target) {
      std::vector<float> p(kMomentBlock), g(kMomentBlock);
      MomentBlock copy = block;
      cpu::optimizer_update(keeps,
                            {.elements = kMomentBlock,
                             .parameters = p.data(),
                             .gradients = g.data(),
                             .moments = {&copy},
                             .moment_dtype = DType::kU8,
                             .square_moments = static_cast<uint8_t>(squares ? 1 : 0)});
      // The parameters are the moments with the other sign.
      for (int i = 0; i < kMomentBlock; ++i) EXPECT_EQ(p[i], -values[i]) << target << squares << i;
    });
  }
}

TEST(MomentBlock, OfZerosIsZeros) {
  const std::vector<float> zeros(kMomentBlock);
  std::vector<float> back(kMomentBlock, 7);
  for (const MomentMap* map : {&kSignedMoments, &kUnsignedMoments}) {
    MomentBlock block = {};  // as fresh memory is
    decode_moments(*map, block, back.data());
    test::expect_same_bits(zeros, back, "fresh");
    encode_moments(*map, zeros.data(), block);
    decode_moments(*map, block, back.data());
    test::expect_same_bits(zeros, back, "encoded");
  }
}

struct Arrays {
  explicit Arrays(int64_t n) : p(n, 1), g(n, 1) {
    test::fill_uniform(p, -1, 1, 1);
    for (auto& moment : moments) moment.resize(static_cast<size_t>(n / kMomentBlock));
  }
  exec::OptimizerSlice slice(int64_t begin, int64_t end) {
    const auto first = static_cast<size_t>(begin / kMomentBlock);
    return {.elements = end - begin,
            .parameters = p.data() + begin,
            .gradients = g.data() + begin,
            .moments = {&moments[0][first], &moments[1][first], &moments[2][first]},
            .moment_dtype = DType::kU8,
            .square_moments = 0b110};
  }
  uint32_t bits(size_t m) const {
    uint32_t sum = 0;
    for (const MomentBlock& block : moments[m]) {
      uint32_t words[65];
      std::memcpy(words, &block, sizeof(words));
      for (const uint32_t word : words) sum += word;
    }
    return sum;
  }
  Guarded<float> p, g;
  std::vector<MomentBlock> moments[3];
};

void expect_same(const Arrays& a, const Arrays& b, const std::string& what) {
  test::expect_same_bits(a.p, b.p, "parameters, " + what);
  for (size_t m = 0; m < 3; ++m)
    EXPECT_EQ(std::memcmp(a.moments[m].data(), b.moments[m].data(), a.moments[m].size() * 260), 0)
        << what << ", moment " << m;
}

TEST(MomentBlock, UpdatesHaveTheBitsOfTheScalarFunctions) {
  const int64_t n = 4 * kMomentBlock;
  test::for_each_target([&](const std::string& target) {
    Arrays vectors(n), cut(n), summed(n), scalars(n);
    for (int64_t t = 1; t <= 4; ++t) {
      const exec::AdamwUpdate update =
          exec::AdamwUpdate::make(AdamFields{0.9, 0.95, 1e-8, 0.1}, {.lr = 0.01, .number = t});
      for (Arrays* arrays : {&vectors, &cut, &summed, &scalars})
        test::fill_uniform(arrays->g, -1, 1, static_cast<uint64_t>(10 + t));
      cpu::optimizer_update(update, vectors.slice(0, n));
      for (const int64_t begin : {int64_t{0}, int64_t{kMomentBlock}})
        cpu::optimizer_update(update, cut.slice(begin, begin == 0 ? kMomentBlock : n));
      exec::SliceChecksums checksums;
      exec::OptimizerSlice slice = summed.slice(0, n);
      slice.checksums = &checksums;
      const uint32_t before[] = {summed.bits(0), summed.bits(1), summed.bits(2)};
      cpu::optimizer_update(update, slice);
      for (size_t m = 0; m < 3; ++m) {
        EXPECT_EQ(checksums.moments[m].read, before[m]) << m;
        EXPECT_EQ(checksums.moments[m].written, summed.bits(m)) << m;
      }
      for (int64_t b = 0; b < n / kMomentBlock; ++b) {
        float floats[3][kMomentBlock];
        const auto at = static_cast<size_t>(b);
        for (size_t m = 0; m < 3; ++m)
          decode_moments(moment_map(m > 0), scalars.moments[m][at], floats[m]);
        for (int64_t i = 0; i < kMomentBlock; ++i)
          update(scalars.g[b * kMomentBlock + i],
                 scalars.p[b * kMomentBlock + i],
                 floats[0][i],
                 floats[1][i],
                 floats[2][i]);
        for (size_t m = 0; m < 3; ++m)
          encode_moments(moment_map(m > 0), floats[m], scalars.moments[m][at]);
      }
    }
    expect_same(vectors, scalars, target);
    expect_same(cut, scalars, target + ", cut");
    expect_same(summed, scalars, target + ", summed");
  });
}

}  // namespace
}  // namespace lockstep::test
