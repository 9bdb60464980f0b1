#include "launcher/command_line/unknown_words.h"

namespace lockstep::launcher {

const std::vector<ForeignFlags> kLauncherFlags = {
    {"n np nproc nproc_per_node num_processes world_size gpus num_gpus ngpus n_gpu n_gpus "
     "num_gpu devices ranks num_ranks ddp distributed nodes nnodes num_nodes num_machines "
     "num_proc gpus_per_node multi_gpu",
     "a launcher starts the ranks: lockstep launch -n {1} -- train CONFIG, or mpirun -n {1} "
     "lockstep {2} ..."},
    {"local_rank rank node_rank machine_rank master_addr master_port main_process_port "
     "dist_url dist_backend rdzv_endpoint rdzv_backend rdzv_id local_world_size backend "
     "ddp_backend dist_on_itp",
     "a rank is told its place by the environment (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT), "
     "which launchers set; leave the flag out"},
    {"allow_run_as_root oversubscribe bind_to map_by mca x host hosts H hostfile machinefile "
     "report_bindings tag_output use_hwthread_cpus",
     "flags of a launcher come before its program: mpirun {0} ... lockstep {2} ..."},
};

const std::vector<ForeignFlags> kTrainerFlags = {
    {"model arch a architecture backbone net network model_type model_name",
     "the network is a section of the config, such as model {{ resnet {{ depth: 18 }} }}; "
     "lockstep config model lists them"},
    {"tp tensor_parallel tensor_parallel_size tensor_model_parallel_size pp "
     "pipeline_parallel pipeline_parallel_size pipeline_model_parallel_size cp "
     "context_parallel context_parallel_size sp sequence_parallel ep expert_parallel "
     "expert_parallel_size",
     "ranks share the data, and no network is split between them; comm.zero_stage shards "
     "moments, gradients or parameters"},
    {"compile torch_compile deterministic cudnn_benchmark cudnn_deterministic "
     "use_deterministic_algorithms benchmark pin_memory pin_mem persistent_workers "
     "prefetch_factor channels_last jit find_unused_parameters no_amp fused do_train train",
     "there is no such choice here; leave the flag out"},
    {"dry_run fast_dev_run smoke_test check validate_config debug_run",
     "to check a config: lockstep config CONFIG --check; to plan a run: lockstep plan CONFIG; to "
     "train a few steps: --max-steps 2"},
    {"evaluate evaluation eval eval_only test test_only validate do_eval do_predict do_test "
     "e inference",
     "another command evaluates: lockstep eval CONFIG --checkpoint RUN_DIR; eval.every evaluates "
     "while training"},
    {"overwrite overwrite_output_dir force clean fresh from_scratch exist_ok",
     "a run folder with checkpoints is never overwritten; give another --run-dir, or delete the "
     "folder"},
    {"lora use_lora use_peft peft qlora",
     "a LoRA is a section of the config: adapter {{ lora {{ rank: 8 alpha: 16 }} }}"},
    {"train_file train_data validation_file val_file val_data eval_file eval_data test_file "
     "input input_file inputs i train_path val_path train_dataset eval_dataset dataset_name "
     "task train_dir val_dir validation_dir test_dir train_images valdir traindir",
     "the data are a section of the config; lockstep config data lists its sources and their "
     "files"},
    {"nb_classes num_classes n_classes classes num_labels",
     "the data tell how many classes there are; leave the flag out"},
    {"mps use_mps tpu use_tpu xpu npu rocm hip",
     "a run is on CPUs or NVIDIA GPUs: --device cpu or cuda"},
};

}  // namespace lockstep::launcher
