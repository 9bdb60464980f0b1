// add_preprocessing_nodes(): the ops in front of and behind a network.
//
// Images. The arithmetic is that of the run, in float, so that the numbers are the same bits:
//   pixels (N, H, W, C) u8 -> Cast -> Div 255 -> Sub mean (C) -> Div std (C)
//     -> Transpose (N, C, H, W), or Reshape to the input's extents
//
// Tables. A numeric column is standardised in double and then rounded, as in TableEncoder:
//   column (N, 1) f64 -> Sub mean -> Div std -> Cast f32 -> 0 if it is NaN [, 1 if it is NaN]
//   column (N, 1) string -> LabelEncoder, the last slot by default -> OneHot -> Reshape (N, slots)
//   all columns -> Concat (N, F) [-> Gather, if several inputs share them] [-> Reshape]
#include "models/onnx/preprocessing_nodes.h"

#include <set>

#include "models/onnx/schema/onnx.pb.h"
#include "runtime/base/error.h"

namespace lockstep::onnx {
namespace {

using schema::TensorProto;

constexpr const char* kLabelEncoder = "LabelEncoder";
constexpr const char* kMlDomain = "ai.onnx.ml";
constexpr int64_t kMlVersion = 2;

TensorProto::DataType number_of(ElementType type) {
  switch (type) {
    case ElementType::kFloat: return TensorProto::FLOAT;
    case ElementType::kDouble: return TensorProto::DOUBLE;
    case ElementType::kFloat16: return TensorProto::FLOAT16;
    case ElementType::kBfloat16: return TensorProto::BFLOAT16;
    case ElementType::kInt8: return TensorProto::INT8;
    case ElementType::kUint8: return TensorProto::UINT8;
    case ElementType::kInt16: return TensorProto::INT16;
    case ElementType::kUint16: return TensorProto::UINT16;
    case ElementType::kInt32: return TensorProto::INT32;
    case ElementType::kUint32: return TensorProto::UINT32;
    case ElementType::kInt64: return TensorProto::INT64;
    case ElementType::kUint64: return TensorProto::UINT64;
    case ElementType::kBool: return TensorProto::BOOL;
    case ElementType::kString: return TensorProto::STRING;
  }
  LOCKSTEP_CHECK(false);
}

schema::AttributeProto integer(const char* name, int64_t value) {
  schema::AttributeProto attribute;
  attribute.set_name(name);
  attribute.set_type(schema::AttributeProto::INT);
  attribute.set_i(value);
  return attribute;
}

schema::AttributeProto integers(const char* name, const std::vector<int64_t>& values) {
  schema::AttributeProto attribute;
  attribute.set_name(name);
  attribute.set_type(schema::AttributeProto::INTS);
  for (const int64_t value : values) attribute.add_ints(value);
  return attribute;
}

schema::AttributeProto texts(const char* name, const std::vector<std::string>& values) {
  schema::AttributeProto attribute;
  attribute.set_name(name);
  attribute.set_type(schema::AttributeProto::STRINGS);
  for (const std::string& value : values) attribute.add_strings(value);
  return attribute;
}

template <typename T>
std::string raw(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// The fields of a graph, with names that the file does not have.
class Nodes {
 public:
  explicit Nodes(std::set<std::string>& names) : names_(names) {}

  std::string fresh(std::string name) {
    while (!names_.insert(name).second) name += '_';
    return name;
  }

  // The name of the node's output.
  std::string add(const std::string& op,
                  const std::vector<std::string>& inputs,
                  const std::vector<schema::AttributeProto>& attributes = {}) {
    const std::string output = fresh("preprocessing/" + std::to_string(graph_.node_size()));
    add_to(output, op, inputs, attributes);
    return output;
  }
  void add_to(const std::string& output,
              const std::string& op,
              const std::vector<std::string>& inputs,
              const std::vector<schema::AttributeProto>& attributes = {}) {
    schema::NodeProto& node = *graph_.add_node();
    for (const std::string& input : inputs) node.add_input(input);
    node.add_output(output);
    node.set_name(fresh("preprocessing/" + op + std::to_string(graph_.node_size())));
    node.set_op_type(op);
    if (op == kLabelEncoder) node.set_domain(kMlDomain);
    for (const schema::AttributeProto& attribute : attributes) *node.add_attribute() = attribute;
  }

  std::string floats(const std::vector<float>& values) {
    return tensor(TensorProto::FLOAT, values.size(), raw(values));
  }
  std::string doubles(const std::vector<double>& values) {
    return tensor(TensorProto::DOUBLE, values.size(), raw(values));
  }
  std::string integers(const std::vector<int64_t>& values) {
    return tensor(TensorProto::INT64, values.size(), raw(values));
  }

  void input(const std::string& name,
             TensorProto::DataType type,
             const std::vector<OpenExtent>& extents) {
    value(*graph_.add_input(), name, type, &extents);
  }
  void output(const std::string& name,
              TensorProto::DataType type,
              const std::vector<OpenExtent>* extents) {
    value(*graph_.add_output(), name, type, extents);
  }

  std::string encoded() const { return graph_.SerializeAsString(); }

 private:
  std::string tensor(TensorProto::DataType type, size_t elements, std::string data) {
    TensorProto& tensor = *graph_.add_initializer();
    tensor.set_name(fresh("preprocessing/constant" + std::to_string(graph_.initializer_size())));
    tensor.add_dims(static_cast<int64_t>(elements));
    tensor.set_data_type(type);
    tensor.set_raw_data(std::move(data));
    return tensor.name();
  }
  static void value(schema::ValueInfoProto& info,
                    const std::string& name,
                    TensorProto::DataType type,
                    const std::vector<OpenExtent>* extents) {
    info.set_name(name);
    schema::TypeProto::Tensor& tensor = *info.mutable_type()->mutable_tensor_type();
    tensor.set_elem_type(type);
    if (extents == nullptr) return;
    schema::TensorShapeProto& shape = *tensor.mutable_shape();
    for (const OpenExtent& extent : *extents) {
      schema::TensorShapeProto::Dimension& dimension = *shape.add_dim();
      if (extent.extent >= 0)
        dimension.set_dim_value(extent.extent);
      else if (!extent.name.empty())
        dimension.set_dim_param(extent.name);
    }
  }

  std::set<std::string>& names_;
  schema::GraphProto graph_;
};

// What is needed of an input that is replaced.
struct Input {
  const FileValue& value;
  bool channels_first;

  // Elements of a sample, -1 if an axis is open.
  int64_t features() const {
    int64_t product = 1;
    for (size_t axis = 1; axis < value.extents.size(); ++axis) {
      if (value.extents[axis].extent < 0) return -1;
      product *= value.extents[axis].extent;
    }
    return product;
  }
};

class Adder {
 public:
  Adder(const File& file, const std::vector<PreparedInput>& inputs) : file_(file) {
    for (const FileValue& value : file.values) names_.insert(value.name);
    for (const PreparedInput& input : inputs) {
      const FileValue& value = file.values[static_cast<size_t>(file.inputs[input.index])];
      if (!value.typed || !value.has_extents || value.extents.empty())
        refuse("{} has no type or no axes", quoted(value));
      inputs_.push_back({value, input.channels_first});
    }
    LOCKSTEP_CHECK(!inputs_.empty());
  }

  void add_images(const config::ImageInputs& images) {
    const std::string pixels = first_.fresh("pixels");
    first_.input(pixels,
                 TensorProto::UINT8,
                 {samples(), {images.height}, {images.width}, {images.channels()}});
    std::string x = first_.add("Cast", {pixels}, {integer("to", TensorProto::FLOAT)});
    x = first_.add("Div", {x, first_.floats({255})});
    x = first_.add("Sub", {x, first_.floats(images.mean)});
    x = first_.add("Div", {x, first_.floats(images.std)});
    if (!inputs_[0].channels_first) return share(x, images.features());
    if (inputs_.size() > 1) refuse("there are several inputs of images");
    const std::vector<OpenExtent>& extents = inputs_[0].value.extents;
    const int64_t wanted[] = {images.channels(), images.height, images.width};
    for (size_t axis = 1; axis < extents.size(); ++axis) {
      if (extents.size() != 4 ||
          (extents[axis].extent >= 0 && extents[axis].extent != wanted[axis - 1]))
        refuse("{} does not take images of {} x {} pixels with {} channels",
               quoted(inputs_[0].value),
               images.height,
               images.width,
               images.channels());
    }
    finish(first_.add("Transpose", {x}, {onnx::integers("perm", {0, 3, 1, 2})}), inputs_[0]);
  }

  void add_table(const config::TableInputs& table) {
    std::vector<std::string> features;
    for (const config::ColumnInputs& column : table.columns) {
      const std::string name = first_.fresh(column.name);
      first_.input(
          name, column.categorical ? TensorProto::STRING : TensorProto::DOUBLE, {samples(), {1}});
      if (column.categorical)
        features.push_back(one_hot(name, column));
      else
        standardise(name, column, &features);
    }
    share(first_.add("Concat", features, {integer("axis", 1)}), table.features());
  }

  void add_target(const config::TableInputs& table, size_t output) {
    if (table.target_mean == 0 && table.target_std == 1) return;
    const FileValue& value = file_.values[static_cast<size_t>(file_.outputs[output])];
    const std::string name = last_.fresh(table.target);
    std::string y = last_.add("Cast", {value.name}, {integer("to", TensorProto::FLOAT)});
    y = last_.add("Mul", {y, last_.floats({static_cast<float>(table.target_std)})});
    last_.add_to(name, "Add", {y, last_.floats({static_cast<float>(table.target_mean)})});
    last_.output(name, TensorProto::FLOAT, value.has_extents ? &value.extents : nullptr);
    inner_outputs_.insert(value.name);
  }

  void finish(Additions& additions) const {
    additions.first_in_graph += first_.encoded();
    additions.last_in_graph += last_.encoded();
    for (const Input& input : inputs_) additions.inner_inputs.insert(input.value.name);
    additions.inner_outputs.insert(inner_outputs_.begin(), inner_outputs_.end());
    if (encodes_labels_) additions.opsets[kMlDomain] = kMlVersion;
  }

 private:
  template <typename... Arguments>
  [[noreturn]] void refuse(fmt::format_string<Arguments...> format,
                           Arguments&&... arguments) const {
    throw ConfigError("--with-preprocessing: {}: {}",
                      file_.path,
                      fmt::format(format, std::forward<Arguments>(arguments)...));
  }
  static std::string quoted(const FileValue& value) { return "input '" + value.name + "'"; }

  const OpenExtent& samples() const { return inputs_[0].value.extents[0]; }

  void standardise(const std::string& name,
                   const config::ColumnInputs& column,
                   std::vector<std::string>* features) {
    std::string x = first_.add("Sub", {name, first_.doubles({column.mean})});
    x = first_.add("Div", {x, first_.doubles({column.std})});
    x = first_.add("Cast", {x}, {integer("to", TensorProto::FLOAT)});
    const std::string missing = first_.add("IsNaN", {x});
    features->push_back(first_.add("Where", {missing, first_.floats({0}), x}));
    if (column.missing_indicator)
      features->push_back(first_.add("Cast", {missing}, {integer("to", TensorProto::FLOAT)}));
  }

  std::string one_hot(const std::string& name, const config::ColumnInputs& column) {
    encodes_labels_ = true;
    const auto slots = static_cast<int64_t>(column.categories.size());
    // Without categories all values are in the one slot; the op needs a key.
    const std::vector<std::string> keys =
        column.categories.empty() ? std::vector<std::string>{""} : column.categories;
    const std::string slot =
        first_.add(kLabelEncoder,
                   {name},
                   {texts("keys_strings", keys),
                    onnx::integers("values_int64s", numbers_from<int64_t>(keys.size())),
                    integer("default_int64", slots)});
    const std::string hot = first_.add("OneHot",
                                       {slot, first_.integers({slots + 1}), first_.floats({0, 1})},
                                       {integer("axis", -1)});
    return first_.add("Reshape", {hot, first_.integers({-1, slots + 1})});
  }

  // Gives each input its part of the features.
  void share(const std::string& features, int64_t count) {
    if (inputs_.size() == 1 && inputs_[0].value.extents.size() == 2 && inputs_[0].features() < 0)
      return finish(first_.add("Reshape", {features, first_.integers({-1, count})}), inputs_[0]);
    int64_t taken = 0;
    for (const Input& input : inputs_) {
      if (input.features() < 0)
        refuse("{} has an open axis besides the first", quoted(input.value));
      taken += input.features();
    }
    if (taken != count)
      refuse("its inputs take {} numbers; the preprocessing gives {}", taken, count);
    const std::string all = inputs_.size() > 1
                                ? first_.add("Reshape", {features, first_.integers({-1, count})})
                                : features;
    int64_t begin = 0;
    for (const Input& input : inputs_) {
      const auto size = static_cast<size_t>(input.features());
      std::string part = all;
      if (inputs_.size() > 1)
        part = first_.add("Gather",
                          {all, first_.integers(numbers_from<int64_t>(size, begin))},
                          {integer("axis", 1)});
      begin += input.features();
      std::vector<int64_t> extents = {-1};
      for (size_t axis = 1; axis < input.value.extents.size(); ++axis)
        extents.push_back(input.value.extents[axis].extent);
      finish(first_.add("Reshape", {part, first_.integers(extents)}), input);
    }
  }

  void finish(const std::string& made, const Input& input) {
    first_.add_to(input.value.name, "Cast", {made}, {integer("to", number_of(input.value.type))});
  }

  const File& file_;
  std::set<std::string> names_;
  std::vector<Input> inputs_;
  std::set<std::string> inner_outputs_;
  bool encodes_labels_ = false;
  Nodes first_{names_}, last_{names_};
};

}  // namespace

std::vector<PreparedInput> prepared_inputs(const std::vector<OnnxInput::Meaning>& meanings) {
  std::vector<PreparedInput> prepared;
  for (size_t index = 0; index < meanings.size(); ++index) {
    const bool images = meanings[index] == OnnxInput::Meaning::kImages;
    if (images || meanings[index] == OnnxInput::Meaning::kFeatures)
      prepared.push_back({index, images});
  }
  return prepared;
}

void add_preprocessing_nodes(const File& file,
                             const std::vector<PreparedInput>& inputs,
                             size_t output,
                             const config::Preprocessing& preprocessing,
                             Additions& additions) {
  Adder adder(file, inputs);
  if (preprocessing.images) {
    adder.add_images(*preprocessing.images);
  } else if (preprocessing.table) {
    adder.add_table(*preprocessing.table);
    adder.add_target(*preprocessing.table, output);
  } else {
    throw ConfigError(
        "--with-preprocessing: {}: takes the numbers of the data as they are; allowed: networks of "
        "images or tables",
        file.path);
  }
  adder.finish(additions);
}

}  // namespace lockstep::onnx
