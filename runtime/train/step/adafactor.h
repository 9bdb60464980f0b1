#pragma once
// The averages of Adafactor's matrices, between the sum of the gradients and the update of the
// weights: see exec/optimizers/adafactor.h and plan/adafactor_layout.h.
//
// A step takes three turns: queue_sums() adds up the squares of this rank's gradients; average()
// waits for them and moves the averages of all ranks by them, on the host; queue_directions()
// overwrites the gradients. The averages are the same on all ranks.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/exchange/timed_waits.h"
#include "runtime/config/run_config.h"
#include "runtime/exec/backend.h"
#include "runtime/plan/plan.h"
#include "runtime/train/step/state_checksums.h"

namespace lockstep::train {

class FactoredAverages {
 public:
  // `device`: of AdafactorLayout::device_bytes(); `host`: of host_bytes(), memory that the backend
  // copies to and from. `communicator`: for memory of the host. All borrowed.
  FactoredAverages(const plan::AdafactorLayout& layout,
                   collectives::Communicator& communicator,
                   exec::Backend& backend,
                   std::byte* device,
                   std::byte* host);

  // Takes the part of a matrix that this slice updates, which begins at `flat`. The slice may want
  // checksums of its gradients.
  void add(const exec::OptimizerSlice& slice, int64_t flat);

  // The next step. `norm`: of all gradients, after they are scaled.
  void prepare(const AdafactorConfig& config, const exec::UpdateStep& step, double norm);
  // Always the same work on the same memory.
  void queue_sums();
  // Waits for the device. Collective: all ranks call it together.
  void average();
  // Always the same work on the same memory.
  void queue_directions();

  std::span<float> averages() const { return {averages_, static_cast<size_t>(layout_.averages)}; }
  // A matrix's averages of its rows, or of its columns.
  std::span<float> of(const plan::FactoredTensor& tensor, bool rows) const {
    const int64_t first = rows ? 0 : tensor.shape.all_rows(),
                  count = rows ? tensor.shape.all_rows() : tensor.shape.all_columns();
    return averages().subspan(static_cast<size_t>(tensor.first + first),
                              static_cast<size_t>(count));
  }
  const plan::AdafactorLayout& layout() const { return layout_; }

  // Reports waits to the borrowed observer from now on; null: to none.
  void observe(collectives::ExchangeObserver* observer) { waits_.observe(observer); }
  // Milliseconds that the host spent waiting for other ranks since begin_step().
  void begin_step() { waits_.clear(); }
  double exposed_ms() const { return waits_.ms(); }

 private:
  struct Piece {
    exec::FactoredPiece piece;
    int64_t checked = 0;                        // elements, with the padding behind the matrix
    exec::SliceChecksums* checksums = nullptr;  // null: not wanted
  };
  // Calls f(tensor, is it a row, index of the average) for the averages [begin, end).
  template <typename F>
  void for_each(int64_t begin, int64_t end, F f) const;
  void add_up_shares();
  void move(int64_t index, float mean);
  void make_factors(const plan::FactoredTensor& tensor);

  const plan::AdafactorLayout& layout_;
  collectives::Communicator& communicator_;
  collectives::TimedWaits waits_;
  exec::Backend& backend_;
  std::span<exec::FactoredStep> step_;  // one
  exec::FactoredStep* constants_;       // the same, where the device reads it
  float weight_ = 1, epsilon_ = 0;
  std::vector<Piece> pieces_;
  // (averages): words of the sums, and factors, on the device and on the host, which may be the
  // same
  int64_t *device_high_, *high_, *low_;
  float *device_factors_, *factors_;
  float* averages_;
  // Messages: for each rank the high words of its share, then the low ones; and the means.
  int64_t *sent_, *received_;
  float* means_;
};

}  // namespace lockstep::train
