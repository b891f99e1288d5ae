//! What is known only once the data are read: the setters that complete the settings, typed fields and tree in step.

use super::{yaml, SettingsError, Standardization, TrainSettings, Value};

impl TrainSettings {
    /// The section of a stage as YAML.
    pub fn stage_yaml(&self, stage: usize) -> String {
        yaml::write(&self.raw["training"][format!("stage_{stage}")])
    }

    /// Whether a stage trains without the embedding's first layer: the last stage up to this one that says so decides.
    pub fn first_layer_is_frozen(&self, stage: usize) -> bool {
        let said = self.stages[..=stage]
            .iter()
            .rev()
            .find_map(|stage| stage.freeze_rb_layer);
        said.unwrap_or(false)
    }

    /// Takes the stages from number `first` on from `written`: what has not begun may still be changed, or added to.
    pub fn take_later_stages(&mut self, written: &TrainSettings, first: usize) {
        let first = first.min(self.stages.len());
        self.stages.truncate(first);
        self.stages.extend(written.stages.iter().skip(first).cloned());
        if let Some(training) = self.raw["training"].as_mapping_mut() {
            let begun: Vec<String> = (0..first).map(|stage| format!("stage_{stage}")).collect();
            training.retain(|name, _| {
                name.as_str()
                    .is_some_and(|name| begun.iter().any(|stage| stage == name))
            });
            for stage in first..self.stages.len() {
                let name = format!("stage_{stage}");
                training.insert(name.as_str().into(), written.raw["training"][&name].clone());
            }
        }
    }

    /// Sets `data.standardization`.
    pub fn set_standardization(&mut self, standardization: &Standardization) {
        self.raw["data"]["standardization"] = standardization.to_value();
        self.data.standardization = Some(standardization.clone());
    }

    /// Sets `data.context_parameters`, an empty list when there are none, as Dingo does.
    pub fn set_context_parameters(&mut self, parameters: Vec<String>) {
        self.raw["data"]["context_parameters"] = Value::from(parameters.as_slice());
        self.data.context_parameters = parameters;
    }

    /// Completes the model as Dingo's `autocomplete_model_kwargs`, from the number of inference parameters and the shape
    /// (detectors, channels, bins) of a sample's strain. Context parameters must have been set before.
    pub fn complete_model(&mut self, num_parameters: usize, input_dims: [usize; 3]) {
        let num_context_parameters = self.data.context_parameters.len();
        let added_context = num_context_parameters > 0;
        let context_dim = self.model.embedding.output_dim + num_context_parameters;

        let embedding = &mut self.raw["model"]["embedding_kwargs"];
        let embedding_input = input_dims.map(|dim| Value::from(dim as u64));
        embedding["input_dims"] = Value::Sequence(embedding_input.to_vec());
        embedding["added_context"] = Value::from(added_context);
        let posterior = &mut self.raw["model"]["posterior_kwargs"];
        posterior["input_dim"] = Value::from(num_parameters as u64);
        posterior["context_dim"] = Value::from(context_dim as u64);

        self.model.embedding.input_dims = Some(input_dims);
        self.model.embedding.added_context = added_context;
        self.model.posterior.input_dim = Some(num_parameters);
        self.model.posterior.context_dim = Some(context_dim);
    }

    /// Whether every stage's batch can be shared out evenly over `world_size` ranks; else an error that names the
    /// nearest batch sizes that can.
    pub fn check_batch_sizes(&self, world_size: usize) -> Result<(), SettingsError> {
        let world_size = world_size.max(1);
        for (n, stage) in self.stages.iter().enumerate() {
            let remainder = stage.batch_size % world_size;
            if remainder == 0 {
                continue;
            }
            let below = stage.batch_size - remainder;
            let nearest = match below {
                0 => format!("is {world_size}"),
                _ => format!("are {below} and {}", below + world_size),
            };
            let found = stage.batch_size;
            let message = format!("found {found}, but {world_size} ranks must share it evenly; the nearest {nearest}");
            return Err(SettingsError::key(format!("training.stage_{n}.batch_size"), message));
        }
        Ok(())
    }
}
