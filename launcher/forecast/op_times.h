#pragma once
// Predicts the time of an op on described hardware.
//
// If the hardware file has measured times of this kind of op in this type, the nearest of them are
// scaled by their work: operations if products are most of it, otherwise bytes. Nearness is the
// distance of the logarithms of operations, bytes and extents. The range grows with the distance.
//
// Otherwise an op takes the time of its operations or of its bytes, whichever is more, each at a
// share of the hardware's peak. For products the share is that of full tiles and waves times what
// large products reach; Efficiency has the shares.

#include <string>
#include <vector>

#include "launcher/forecast/op_work.h"
#include "launcher/forecast/range.h"
#include "runtime/config/hardware.h"

namespace lockstep::forecast {

// In what a run computes.
struct Arithmetic {
  DType compute = DType::kF32;
  bool tf32 = false, bf16x3 = false;

  // As MeasuredOp::type names it, for an op whose operands have this type.
  std::string name(DType type) const;
};

// The node that the ops of a rank share with those of other ranks.
struct NodeUse {
  int ranks = 1;    // of the node, at work at the same time
  int threads = 1;  // of each; on CPUs only
};

// Shares of the peak that are expected of ops without measurements.
struct Efficiency {
  Range large_products;  // of the peak of products, if tiles and waves are full
  Range convolutions;
  Range attention;
  Range functions;    // of the peak in FP32: exponentials and the like
  Range memory;       // of the memory's rate
  Range overhead_us;  // of each op: on a GPU the launch of its kernels
};
const Efficiency& efficiency_of(const Hardware& hardware);

// The GPU whose kernels run the ops; none on a CPU.
std::optional<cuda::KernelGpu> gpu_of(const Hardware& hardware, const Arithmetic& arithmetic);

// The peak of products in floating-point operations a second, of a device or of the threads of a
// rank.
double peak_flops(const Hardware& hardware, const Arithmetic& arithmetic, DType type);

struct OpTime {
  Range seconds;
  bool measured = false;  // from measurements of the hardware itself
};

// A time that stands in place of a prediction; with the fields of MeasuredOp.
struct KnownTime {
  std::string op, type;
  std::vector<int64_t> extents;
  double flops = 0, bytes = 0;
  Range seconds;

  bool is(const std::string& other_op,
          const std::string& other_type,
          const std::vector<int64_t>& other_extents,
          double other_flops,
          double other_bytes) const {
    return op == other_op && type == other_type && extents == other_extents &&
           flops == other_flops && bytes == other_bytes;
  }
};

class OpTimes {
 public:
  // `hardware` and `known` are borrowed; `known` may be null.
  OpTimes(const Hardware& hardware,
          const Arithmetic& arithmetic,
          const NodeUse& use,
          const std::vector<KnownTime>* known = nullptr);

  OpTime time(const OpWork& work) const;
  // The least time, at the peak rates.
  double least_seconds(const OpWork& work) const;
  double least_seconds(const OpWork& work, const Product& product) const;
  // The time of work that is no op of a graph but has been measured like one (timed_run.h). Without
  // measurements it is bound by memory.
  OpTime time(const std::string& name, double bytes, const std::vector<int64_t>& extents) const;

 private:
  struct Sought;  // what measurements are compared with
  bool measured(const Sought& sought, OpTime* time) const;
  Range roofline(const OpWork& work) const;
  double share() const;  // of the node's rates that this rank has

  const Hardware& hardware_;
  const Arithmetic arithmetic_;
  const NodeUse use_;
  const std::vector<KnownTime>* const known_;
};

}  // namespace lockstep::forecast
