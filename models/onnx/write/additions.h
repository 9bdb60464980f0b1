#pragma once
// What an ONNX file gets beside new elements: metadata, and nodes before and behind its own.

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "models/onnx/read/wire.h"

namespace lockstep::onnx {

struct Additions {
  // metadata_props of the model, as onnxruntime's custom_metadata_map has them. They replace those
  // of the same key.
  std::map<std::string, std::string> metadata = {};
  // Encoded fields of the graph, before and behind its own: nodes in topological order,
  // initializers, inputs, outputs.
  std::string first_in_graph = {}, last_in_graph = {};
  // Imported opsets by domain. They replace the file's.
  std::map<std::string, int64_t> opsets = {};
  // Names of inputs and outputs of the graph that become values inside it.
  std::set<std::string> inner_inputs = {}, inner_outputs = {};
};

// For use in a Change of rewrite_message(), for fields of the model and of the outermost graph:
// whether the field is left out.
bool leaves_out_of_model(const Additions& additions, const WireField& field);
bool leaves_out_of_graph(const Additions& additions, const WireField& field);

// The encoded metadata and opsets.
std::string fields_of_model(const Additions& additions);

}  // namespace lockstep::onnx
