#pragma once
// Tensors of a file that is written again, with new elements or in a new external file.

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "models/onnx/array.h"
#include "models/onnx/external_data.h"
#include "models/onnx/wire.h"

namespace lockstep::onnx {

// Elements in the external file.
struct OutsideElements {
  uint64_t offset = 0;
  std::shared_ptr<const std::byte> data;
  size_t bytes = 0;
};

class TensorWriter {
 public:
  // `location` is the external file's name for those who read the new file. With `move_outside` raw elements
  // of a kibibyte and more go there, too.
  TensorWriter(const std::string& source, std::string location, bool move_outside);

  // The message of the tensor `what`, with these elements where `elements` is not null: of the tensor's
  // own type, to which floating-point ones are rounded. The rope points to `tensor` and into this object.
  // Throws ConfigError where extents or types differ.
  Rope rewrite(Bytes tensor, const Array* elements, const std::string& what);

  const std::vector<OutsideElements>& outside() const { return outside_; }

 private:
  Rope rewrite_inside(Bytes tensor, const Array& elements);
  Rope rewrite_external(Bytes tensor,
                        const ExternalPlace& old,
                        std::shared_ptr<const std::byte> data,
                        size_t bytes);
  Rope move_outside(Bytes tensor, std::shared_ptr<const std::byte> data, size_t bytes);
  uint64_t put_outside(std::shared_ptr<const std::byte> data,
                       size_t bytes,
                       const ExternalPlace* old);

  std::string location_;
  bool move_outside_;
  ExternalData external_;
  std::string home_;  // the external file whose offsets are kept
  uint64_t end_ = 0;
  std::vector<OutsideElements> outside_;
  std::list<Array> kept_;  // to which pieces of the ropes point
};

// `array` as one of `type`: floating-point elements rounded; others must have the type.
Array converted(const Array& array, ElementType type, const std::string& what);

}  // namespace lockstep::onnx
