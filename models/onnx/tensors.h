#pragma once
// Tensors of an ONNX file as arrays.

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "models/onnx/array.h"
#include "models/onnx/external_data.h"

namespace lockstep::onnx {

namespace schema {
class ModelProto;
class TensorProto;
}  // namespace schema

// The type of a number of the format; nothing where networks here have no such type.
std::optional<ElementType> element_type_of(int number);
// The number, and what the format calls it: "17 (float8e4m3fn)".
std::string type_text_of(int number);

// The tensor's extents. Throws ConfigError, beginning with `what`, where one is below 0 or so many elements of
// `element` bytes are beyond memory.
Extents extents_of(const schema::TensorProto& tensor, size_t element, const std::string& what);

// Reads tensors of one model. Elements that the model has as they are in memory are not copied: the
// arrays keep the model, or the map of the external file.
class TensorReader {
 public:
  TensorReader(const std::string& path, std::shared_ptr<const schema::ModelProto> model);

  // `what` is the tensor for messages: "initializer 'conv1.weight'". Throws ConfigError: types that are
  // not known; extents below 0 or beyond memory; elements that are not as many as the extents say or
  // are no values of the type; external data as external_data.h says. Texts have no data.
  Array read(const schema::TensorProto& tensor, const std::string& what);

 private:
  Array read_anew(const schema::TensorProto& tensor, const std::string& what);
  std::shared_ptr<const std::byte> raw_data(const schema::TensorProto& tensor,
                                            const Array& array,
                                            const std::string& what) const;
  Array from_fields(const schema::TensorProto& tensor, Array array, const std::string& what) const;

  std::string path_;
  std::shared_ptr<const schema::ModelProto> model_;
  ExternalData external_;
  // A function's tensor is read with each of its calls.
  std::map<const schema::TensorProto*, Array> known_;
};

}  // namespace lockstep::onnx
