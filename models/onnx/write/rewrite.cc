#include "models/onnx/write/tensor_writer.h"
#include "runtime/base/text.h"

#include <set>
#include <string_view>
#include <utility>

#include "models/onnx/read/functions.h"
#include "models/onnx/schema/onnx.pb.h"
#include "runtime/base/error.h"

namespace lockstep::onnx {
namespace {

constexpr int kMaxGraphDepth = 100;

// Fields that may contain external tensors but are not in the schema that this program reads.
constexpr uint32_t kTrainingInfo = 20;       // of a model: graphs in its fields 1 and 2
constexpr uint32_t kSparseInitializer = 15;  // of a graph: tensors in its fields 1 and 2

class Rewriter {
 public:
  Rewriter(const std::string& path,
           const std::map<std::string, Array>& replaced,
           TensorWriter& tensors,
           const Additions& additions)
      : path_(path), replaced_(replaced), tensors_(tensors), additions_(additions) {}

  ByteChain model(Bytes bytes) {
    using Proto = schema::ModelProto;
    ByteChain result = messages(
        bytes,
        [&](const WireField& field) -> std::optional<ByteChain> {
          if (field.number == Proto::kGraphFieldNumber) return outermost_graph(field.value);
          if (field.number == Proto::kFunctionsFieldNumber) return function(field.value);
          if (field.number == kTrainingInfo) return pair_of_graphs(field.value);
          return std::nullopt;
        },
        [&](const WireField& field) { return leaves_out_of_model(additions_, field); });
    for (const auto& [name, elements] : replaced_)
      if (written_.count(name) == 0)
        throw ConfigError(
            "{}: its graph has no initializer or Constant node {}", path_, quote_name(name));
    result.own(fields_of_model(additions_));
    return result;
  }

 private:
  // Copies a message, with new values for the length-delimited fields for which `change` returns
  // one, and without those that are to be left out.
  static ByteChain messages(Bytes bytes,
                            const Change& change,
                            const std::function<bool(const WireField&)>& leaves_out = nullptr) {
    return rewrite_message(bytes, [&](const WireField& field) -> std::optional<ByteChain> {
      if (field.type != WireType::kBytes) return std::nullopt;
      if (leaves_out && leaves_out(field)) return ByteChain();
      std::optional<ByteChain> value = change(field);
      return value ? with_value(field, std::move(*value)) : std::nullopt;
    });
  }

  ByteChain outermost_graph(Bytes bytes) {
    ByteChain result;
    result.own(additions_.first_in_graph);
    result.append(graph(bytes, true));
    result.own(additions_.last_in_graph);
    return result;
  }

  ByteChain graph(Bytes bytes, bool outermost) {
    using Proto = schema::GraphProto;
    if (++depth_ > kMaxGraphDepth)
      throw ConfigError("{}: graphs are nested more than {} deep", path_, kMaxGraphDepth);
    ByteChain result = messages(
        bytes,
        [&](const WireField& field) -> std::optional<ByteChain> {
          if (field.number == Proto::kNodeFieldNumber) return node(field.value, outermost);
          if (field.number == kSparseInitializer) return sparse(field.value);
          if (field.number != Proto::kInitializerFieldNumber) return std::nullopt;
          const std::string name = text_of(field.value, schema::TensorProto::kNameFieldNumber);
          const Array* elements = outermost ? new_elements(name) : nullptr;
          return tensor(field.value, elements, fmt::format("initializer {}", quote_name(name)));
        },
        [&](const WireField& field) {
          return outermost && leaves_out_of_graph(additions_, field);
        });
    --depth_;
    return result;
  }

  ByteChain pair_of_graphs(Bytes bytes) {
    return messages(bytes, [&](const WireField& field) -> std::optional<ByteChain> {
      if (field.number > 2) return std::nullopt;
      return graph(field.value, false);
    });
  }

  ByteChain function(Bytes bytes) {
    using Proto = schema::FunctionProto;
    return messages(bytes, [&](const WireField& field) -> std::optional<ByteChain> {
      if (field.number == Proto::kNodeFieldNumber) return node(field.value, false);
      if (field.number == Proto::kAttributeProtoFieldNumber) return attribute(field.value, nullptr);
      return std::nullopt;
    });
  }

  ByteChain node(Bytes bytes, bool outermost) {
    using Proto = schema::NodeProto;
    const bool constant = outermost && text_of(bytes, Proto::kOpTypeFieldNumber) == "Constant" &&
                          domain_of(text_of(bytes, Proto::kDomainFieldNumber)).empty();
    const std::string name = constant ? text_of(bytes, Proto::kOutputFieldNumber) : "";
    const Array* elements = constant ? new_elements(name) : nullptr;
    return messages(bytes, [&](const WireField& field) -> std::optional<ByteChain> {
      if (field.number != Proto::kAttributeFieldNumber) return std::nullopt;
      return attribute(field.value, elements);
    });
  }

  ByteChain attribute(Bytes bytes, const Array* elements) {
    using Proto = schema::AttributeProto;
    const std::string name = text_of(bytes, Proto::kNameFieldNumber);
    if (elements != nullptr && name != "value") return numbers(bytes, name, *elements);
    const std::string what = fmt::format("attribute {}", quote_name(name));
    return messages(bytes, [&](const WireField& field) -> std::optional<ByteChain> {
      switch (field.number) {
        case Proto::kTFieldNumber: return tensor(field.value, elements, what);
        case Proto::kTensorsFieldNumber: return tensor(field.value, nullptr, what);
        case Proto::kGFieldNumber:
        case Proto::kGraphsFieldNumber: return graph(field.value, false);
        case Proto::kSparseTensorFieldNumber:
        case Proto::kSparseTensorsFieldNumber: return sparse(field.value);
        default: return std::nullopt;
      }
    });
  }

  // Replaces the attribute value_float or value_floats of a Constant node.
  ByteChain numbers(Bytes bytes, const std::string& name, const Array& elements) {
    using Proto = schema::AttributeProto;
    const bool one = name == "value_float";
    const uint32_t number = one ? Proto::kFFieldNumber : Proto::kFloatsFieldNumber;
    const std::string what = fmt::format("{}: attribute {}", path_, quote_name(name));
    if (!one && name != "value_floats")
      throw ConfigError("{}: its elements cannot be replaced; must be floating-point", what);
    const Array floats = converted(elements, ElementType::kFloat, what);
    const std::string_view text(reinterpret_cast<const char*>(floats.data.get()), floats.bytes());
    std::string written = bytes_field(number, text);
    if (one) {
      written.clear();
      append_tag(written, number, WireType::kFixed32);
      written += text;
    }
    size_t bytes_before = 0;
    ByteChain result =
        rewrite_message(bytes, [&](const WireField& field) -> std::optional<ByteChain> {
          if (field.number != number) return std::nullopt;
          ByteChain replacement;  // the first field becomes all numbers, the others nothing
          if (std::exchange(bytes_before, bytes_before + field.value.size()) == 0)
            replacement.own(written);
          return replacement;
        });
    if (bytes_before != floats.bytes() || floats.extents.size() != (one ? 0 : 1))
      throw ConfigError("{}: its new elements have extents {}; must be {} number{}",
                        what,
                        to_string(floats.extents),
                        bytes_before / sizeof(float),
                        one ? "" : "s, in one dimension");
    return result;
  }

  ByteChain sparse(Bytes bytes) {
    return messages(bytes, [&](const WireField& field) -> std::optional<ByteChain> {
      if (field.number > 2) return std::nullopt;
      return tensor(field.value, nullptr, "a sparse tensor");
    });
  }

  ByteChain tensor(Bytes bytes, const Array* elements, const std::string& what) {
    return tensors_.rewrite(bytes, elements, fmt::format("{}: {}", path_, what));
  }

  const Array* new_elements(const std::string& name) {
    const auto found = replaced_.find(name);
    if (found == replaced_.end()) return nullptr;
    written_.insert(name);
    return &found->second;
  }

  const std::string& path_;
  const std::map<std::string, Array>& replaced_;
  TensorWriter& tensors_;
  const Additions& additions_;
  std::set<std::string> written_;
  int depth_ = 0;
};

}  // namespace

ByteChain rewrite_model(Bytes model,
                        const std::string& path,
                        const std::map<std::string, Array>& replaced,
                        TensorWriter& tensors,
                        const Additions& additions) {
  return Rewriter(path, replaced, tensors, additions).model(model);
}

}  // namespace lockstep::onnx
