// The pixels of a sample are cut into parts that stay in the second-level cache; the division
// depends on the shape alone. Each part has two sums for every channel. The sums of a group's parts
// and channels are combined in double precision, in order. So threads share the parts even if there
// are few samples.
#include "runtime/graph/ops/group_norm.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/base/threads.h"
#include "runtime/cpu/grain_size.h"
#include "runtime/cpu/ops/implementations.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/ops/group_norm.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

// For pixels [0, n) of x (n, C): sums (C) of each channel, and squares (C) of the differences from
// the channel's mean in the part. Nothing cancels, neither here nor when parts are combined.
void group_norm_sums_kernel(
    const float* x, int64_t n, int64_t channels, float* sums, float* squares) {
  std::memset(sums, 0, static_cast<size_t>(2 * channels) * sizeof(float));
  for (int64_t p = 0; p < n; ++p) {
    const float* const row = x + p * channels;
    for_each_vector(channels, [&](size_t c, auto access) HWY_ATTR {
      access.store(hn::Add(access.load(sums + c), access.load(row + c)), sums + c);
    });
  }
  const Vec share = set(1.0f / static_cast<float>(n));
  for (int64_t p = 0; p < n; ++p) {
    const float* const row = x + p * channels;
    for_each_vector(channels, [&](size_t c, auto access) HWY_ATTR {
      const Vec distance = hn::NegMulAdd(access.load(sums + c), share, access.load(row + c));
      access.store(hn::MulAdd(distance, distance, access.load(squares + c)), squares + c);
    });
  }
}

// y = (x - mean) scale + shift, all per channel.
void group_norm_apply_kernel(const float* x,
                             int64_t n,
                             int64_t channels,
                             const float* mean,
                             const float* scale,
                             const float* shift,
                             float* y) {
  for (int64_t p = 0; p < n; ++p) {
    for_each_vector(channels, [&](size_t c, auto access) HWY_ATTR {
      const Vec centred = hn::Sub(access.load(x + p * channels + c), access.load(mean + c));
      access.store(hn::MulAdd(centred, access.load(scale + c), access.load(shift + c)),
                   y + p * channels + c);
    });
  }
}

// For each channel, the sums of d_y and of d_y (x - mean).
void group_norm_gradient_sums_kernel(const float* d_y,
                                     const float* x,
                                     int64_t n,
                                     int64_t channels,
                                     const float* mean,
                                     float* sums,
                                     float* products) {
  std::memset(sums, 0, static_cast<size_t>(2 * channels) * sizeof(float));
  for (int64_t p = 0; p < n; ++p) {
    for_each_vector(channels, [&](size_t c, auto access) HWY_ATTR {
      const Vec d = access.load(d_y + p * channels + c);
      const Vec centred = hn::Sub(access.load(x + p * channels + c), access.load(mean + c));
      access.store(hn::Add(access.load(sums + c), d), sums + c);
      access.store(hn::MulAdd(d, centred, access.load(products + c)), products + c);
    });
  }
}

// d_x = d_y scale + (x - mean) slope + shift, all per channel.
void group_norm_gradient_kernel(const float* d_y,
                                const float* x,
                                int64_t n,
                                int64_t channels,
                                const float* mean,
                                const float* scale,
                                const float* slope,
                                const float* shift,
                                float* d_x) {
  for (int64_t p = 0; p < n; ++p) {
    for_each_vector(channels, [&](size_t c, auto access) HWY_ATTR {
      const Vec centred = hn::Sub(access.load(x + p * channels + c), access.load(mean + c));
      const Vec own = hn::MulAdd(
          access.load(d_y + p * channels + c), access.load(scale + c), access.load(shift + c));
      access.store(hn::MulAdd(centred, access.load(slope + c), own), d_x + p * channels + c);
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(group_norm_sums_kernel);
HWY_EXPORT(group_norm_apply_kernel);
HWY_EXPORT(group_norm_gradient_sums_kernel);
HWY_EXPORT(group_norm_gradient_kernel);

namespace {

// The division of a sample's pixels into parts.
struct Parts {
  explicit Parts(const graph::GroupNormShape& s)
      : shape(s),
        each(std::clamp<int64_t>(kPartElements / s.channels, 16, std::max<int64_t>(16, s.pixels))),
        count((s.pixels + each - 1) / each) {}

  // Calls body(sample, part, first pixel among all samples, pixels) for every part.
  template <typename Body>
  void for_each(Body&& body) const {
    parallel_for(
        shape.samples * count, grain_rows(each * shape.channels), [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            const int64_t sample = i / count, first = i % count * each;
            body(sample,
                 i % count,
                 sample * shape.pixels + first,
                 std::min(each, shape.pixels - first));
          }
        });
  }
  // Calls body(sample, group) for every group.
  template <typename Body>
  void for_each_group(Body&& body) const {
    parallel_for(shape.samples * shape.groups,
                 grain_rows(4 * count * shape.group_channels()),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t i = begin; i < end; ++i) body(i / shape.groups, i % shape.groups);
                 });
  }

  static constexpr int64_t kPartElements = 16384;
  graph::GroupNormShape shape;
  int64_t each, count;  // pixels per part (fewer in a sample's last one); parts per sample
};

// Two sums for each channel of each part, and kRows rows of channels for each sample.
struct Workspace {
  Workspace(const Parts& parts, float* memory)
      : parts(parts),
        sums_(memory),
        rows_(memory + parts.shape.samples * parts.count * 2 * parts.shape.channels) {}

  float* sums(int64_t sample, int64_t part) const {
    return sums_ + (sample * parts.count + part) * 2 * parts.shape.channels;
  }
  float* row(int64_t sample, int64_t number) const {
    return rows_ + (sample * kRows + number) * parts.shape.channels;
  }
  static size_t bytes(const Parts& parts) {
    return static_cast<size_t>(parts.shape.samples * (2 * parts.count + kRows) *
                               parts.shape.channels) *
           sizeof(float);
  }

  static constexpr int64_t kRows = 6;
  const Parts& parts;

 private:
  float *sums_, *rows_;
};

template <template <typename> typename Op>
size_t workspace_bytes(const graph::OpCall& call) {
  return Workspace::bytes(Parts(Op<float>{call}.shape));
}

void run_forward(const graph::GroupNormForward<float>& op) {
  const graph::GroupNormShape& s = op.shape;
  const Parts parts(s);
  const Workspace work(parts, op.workspace);
  const int64_t channels = s.channels, each = s.group_channels();
  const auto sums_kernel = HWY_DYNAMIC_DISPATCH(group_norm_sums_kernel);
  parts.for_each([&](int64_t sample, int64_t part, int64_t first, int64_t n) {
    float* const sums = work.sums(sample, part);
    sums_kernel(op.x + first * channels, n, channels, sums, sums + channels);
  });
  parts.for_each_group([&](int64_t sample, int64_t group) {
    const int64_t begin = group * each, end = begin + each;
    const double count = static_cast<double>(s.pixels * each);
    double mean = 0, squares = 0;
    for (int64_t part = 0; part < parts.count; ++part) {
      const float* const sums = work.sums(sample, part);
      for (int64_t c = begin; c < end; ++c) mean += sums[c];
    }
    mean /= count;
    for (int64_t part = 0; part < parts.count; ++part) {
      const auto n = static_cast<double>(std::min(parts.each, s.pixels - part * parts.each));
      const float* const sums = work.sums(sample, part);
      for (int64_t c = begin; c < end; ++c) {
        const double distance = sums[c] / n - mean;
        squares += sums[channels + c] + n * distance * distance;
      }
    }
    const double rstd = 1 / std::sqrt(squares / count + op.epsilon);
    op.mean[sample * s.groups + group] = static_cast<float>(mean);
    op.rstd[sample * s.groups + group] = static_cast<float>(rstd);
    for (int64_t c = begin; c < end; ++c) {
      work.row(sample, 0)[c] = static_cast<float>(mean);
      work.row(sample, 1)[c] = static_cast<float>(op.gamma == nullptr ? rstd : rstd * op.gamma[c]);
      work.row(sample, 2)[c] = op.beta == nullptr ? 0 : op.beta[c];
    }
  });
  const auto apply = HWY_DYNAMIC_DISPATCH(group_norm_apply_kernel);
  parts.for_each([&](int64_t sample, int64_t, int64_t first, int64_t n) {
    apply(op.x + first * channels,
          n,
          channels,
          work.row(sample, 0),
          work.row(sample, 1),
          work.row(sample, 2),
          op.y + first * channels);
  });
}

// The rows of a sample are: mean, scale, slope, shift, and the sums of d_y xhat and of d_y.
void run_backward(const graph::GroupNormBackward<float>& op) {
  const graph::GroupNormShape& s = op.shape;
  const Parts parts(s);
  const Workspace work(parts, op.workspace);
  const int64_t channels = s.channels, each = s.group_channels();
  for (int64_t sample = 0; sample < s.samples; ++sample) {
    for (int64_t c = 0; c < channels; ++c)
      work.row(sample, 0)[c] = op.mean[sample * s.groups + c / each];
  }
  const auto sums_kernel = HWY_DYNAMIC_DISPATCH(group_norm_gradient_sums_kernel);
  parts.for_each([&](int64_t sample, int64_t part, int64_t first, int64_t n) {
    float* const sums = work.sums(sample, part);
    sums_kernel(op.d_y + first * channels,
                op.x + first * channels,
                n,
                channels,
                work.row(sample, 0),
                sums,
                sums + channels);
  });
  parts.for_each_group([&](int64_t sample, int64_t group) {
    const double count = static_cast<double>(s.pixels * each);
    const double rstd = op.rstd[sample * s.groups + group];
    double mean_g = 0, mean_g_xhat = 0;
    for (int64_t c = group * each; c < (group + 1) * each; ++c) {
      double sum = 0, product = 0;
      for (int64_t part = 0; part < parts.count; ++part) {
        sum += work.sums(sample, part)[c];
        product += work.sums(sample, part)[channels + c];
      }
      const double gamma = op.gamma == nullptr ? 1 : op.gamma[c];
      mean_g += gamma * sum / count;
      mean_g_xhat += gamma * rstd * product / count;
      work.row(sample, 4)[c] = static_cast<float>(rstd * product);
      work.row(sample, 5)[c] = static_cast<float>(sum);
    }
    for (int64_t c = group * each; c < (group + 1) * each; ++c) {
      work.row(sample, 1)[c] = static_cast<float>(op.gamma == nullptr ? rstd : rstd * op.gamma[c]);
      work.row(sample, 2)[c] = static_cast<float>(-rstd * rstd * mean_g_xhat);
      work.row(sample, 3)[c] = static_cast<float>(-rstd * mean_g);
    }
  });
  const auto gradient = HWY_DYNAMIC_DISPATCH(group_norm_gradient_kernel);
  parts.for_each([&](int64_t sample, int64_t, int64_t first, int64_t n) {
    gradient(op.d_y + first * channels,
             op.x + first * channels,
             n,
             channels,
             work.row(sample, 0),
             work.row(sample, 1),
             work.row(sample, 2),
             work.row(sample, 3),
             op.d_x + first * channels);
  });
  parallel_for(channels, grain_rows(2 * s.samples), [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      double d_gamma = 0, d_beta = 0;
      for (int64_t sample = 0; sample < s.samples; ++sample) {
        d_gamma += work.row(sample, 4)[c];
        d_beta += work.row(sample, 5)[c];
      }
      if (op.d_gamma != nullptr) op.d_gamma[c] = static_cast<float>(d_gamma);
      if (op.d_beta != nullptr) op.d_beta[c] = static_cast<float>(d_beta);
    }
  });
}

constexpr exec::Implementation kRows[] = {
    row<run_forward, workspace_bytes<graph::GroupNormForward>>(graph::OpKind::kGroupNorm, "simd"),
    row<run_backward, workspace_bytes<graph::GroupNormBackward>>(graph::OpKind::kGroupNormBackward,
                                                                 "simd"),
};

}  // namespace

constinit const exec::Implementations kCpuGroupNorm = kRows;

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
