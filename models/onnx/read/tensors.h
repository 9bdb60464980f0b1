#pragma once
// Reads tensors of an ONNX file as arrays.

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "models/onnx/read/array.h"
#include "models/onnx/read/external_data.h"

namespace lockstep::onnx {

namespace schema {
class ModelProto;
class TensorProto;
}  // namespace schema

// The element type with this number in the format; none if it is not supported.
std::optional<ElementType> element_type_of(int64_t number);
// The number and the format's name of the type: "17 (float8e4m3fn)".
std::string type_text_of(int number);

// The tensor's extents. Throws ConfigError, with `what` in front, if one is below 0, or if that
// many elements of `element` bytes overflow an int64_t.
Extents extents_of(const schema::TensorProto& tensor, size_t element, const std::string& what);

// Reads tensors of one model. Raw and external elements are not copied: the arrays keep the model
// or the mapped external file alive.
class TensorReader {
 public:
  TensorReader(const std::string& path, std::shared_ptr<const schema::ModelProto> model);

  // `what` describes the tensor, for error messages: "initializer 'conv1.weight'". Throws
  // ConfigError for unsupported types, extents below 0 or too large for memory, elements that do
  // not match the extents or are not valid values of the type, and the errors of external_data.h.
  // Arrays of strings have no data.
  Array read(const schema::TensorProto& tensor, const std::string& what);

 private:
  Array read_uncached(const schema::TensorProto& tensor, const std::string& what);
  std::shared_ptr<const std::byte> raw_data(const schema::TensorProto& tensor,
                                            const Array& array,
                                            const std::string& what) const;
  Array from_fields(const schema::TensorProto& tensor, Array array, const std::string& what) const;

  std::string path_;
  std::shared_ptr<const schema::ModelProto> model_;
  ExternalData external_;
  // A tensor in a function is requested for each call, but read once.
  std::map<const schema::TensorProto*, Array> known_;
};

}  // namespace lockstep::onnx
