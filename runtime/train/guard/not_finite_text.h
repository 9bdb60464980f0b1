#pragma once
// What messages say about numbers that are not finite.

#include <span>
#include <string>
#include <vector>

#include "runtime/data/batch_samples.h"
#include "runtime/train/guard/op_values.h"
#include "runtime/train/run_context.h"

namespace lockstep::train {

// The remedy if a mask hides a whole row.
inline constexpr char kOtherMask[] =
    "a mask that leaves at least one element of each row, or, in an ONNX file, the node Attention, "
    "which returns 0 for such a row";

// "inf", "nan", whatever its sign bit, or the number.
std::string number_text(double number);

// "the activation layers.0.out of the linear 'layers.0' is the first that is not finite", for op
// number `number` and the tensor that it read or wrote. `of_mask`: NaN that comes from -infinity.
std::string text_of_op(
    const graph::Graph& graph, const graph::Op& op, int64_t number, TensorId tensor, bool of_mask);

// ", for sample 331 of x.npy and sample 12 of x.npy"; `rows` are indices in `samples`. Empty if
// there are none.
std::string words_of_rows(const std::vector<int64_t>& rows,
                          std::span<const data::SampleKey> samples,
                          const data::Dataset& dataset);

// " (it reads layers.0 up to 3.1, targets up to 1e+20)".
std::string words_of_inputs(const graph::Graph& graph, const std::vector<OpValues::Input>& inputs);

data::TrainingOrder order_of(const RunConfig& config);

// The largest numbers in the batch of the step after `done` completed ones; none if a file cannot
// be read now: messages do without.
data::LargestNumbers largest_of_step(const RunContext& context, int64_t done);

// The end of a warning that the first steps explode: what is probably wrong, and the remedy.
// `largest`: of the batch.
std::string words_for_explosion(const RunConfig& config,
                                const data::LargestNumbers& largest,
                                const data::Dataset& dataset);

}  // namespace lockstep::train
