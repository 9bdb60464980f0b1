#pragma once
// Rewrites tensors of a file, with new elements or in a new external file.

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "models/onnx/read/array.h"
#include "models/onnx/read/external_data.h"
#include "models/onnx/read/wire.h"
#include "models/onnx/write/additions.h"

namespace lockstep::onnx {

// Elements to be written to the external file.
struct OutsideElements {
  uint64_t offset = 0;
  std::shared_ptr<const std::byte> data;
  size_t bytes = 0;
};

class TensorWriter {
 public:
  // `source` is the path of the old file, `location` the name of the new external file. With
  // `move_outside`, raw elements of 1 KiB and more are moved there as well.
  TensorWriter(const std::string& source, std::string location, bool move_outside);

  // Rewrites the message of a tensor. If `elements` is not null, they replace its elements;
  // floating-point ones are rounded to the tensor's type. The result refers to `tensor` and to this
  // object, which must outlive it. `what` describes the tensor, for error messages. Throws
  // ConfigError if extents or types differ.
  ByteChain rewrite(Bytes tensor, const Array* elements, const std::string& what);

  const std::vector<OutsideElements>& outside() const { return outside_; }

 private:
  ByteChain rewrite_inside(Bytes tensor, const Array& elements);
  ByteChain rewrite_external(Bytes tensor,
                             const ExternalReference& old,
                             std::shared_ptr<const std::byte> data,
                             size_t bytes);
  ByteChain move_outside(Bytes tensor, std::shared_ptr<const std::byte> data, size_t bytes);
  uint64_t put_outside(std::shared_ptr<const std::byte> data,
                       size_t bytes,
                       const ExternalReference* old);

  std::string location_;
  bool move_outside_;
  ExternalData external_;
  std::string home_;  // the old external file, whose offsets are kept
  uint64_t end_ = 0;
  std::vector<OutsideElements> outside_;
  std::list<Array> kept_;  // to which the returned chains point
};

// Converts the array to `type`: floating-point elements are rounded, others must have the type
// already.
Array converted(const Array& array, ElementType type, const std::string& what);

// Copies the bytes of an ONNX file, with new elements for the tensors named in `replaced`, and with
// the additions. `tensors` collects the external elements. `path` is the file's, for errors. Throws
// ConfigError.
ByteChain rewrite_model(Bytes model,
                        const std::string& path,
                        const std::map<std::string, Array>& replaced,
                        TensorWriter& tensors,
                        const Additions& additions = {});

}  // namespace lockstep::onnx
