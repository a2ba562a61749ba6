//! The methods we know by name.

macro_rules! methods {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// A method of the protocol.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Method { $($(#[$doc])* $name,)* }

        impl Method {
            /// How many there are.
            pub const COUNT: usize = [$(Self::$name),*].len();
            /// All, in the order of their numbers.
            pub const ALL: [Self; Self::COUNT] = [$(Self::$name),*];

            /// The method of that name, as it stands between the quotes; `None` for one that we do not know.
            pub fn parse(name: &[u8]) -> Option<Self> {
                // Some encoders escape every solidus: `tools\/call` is a name of ours, too.
                if name.contains(&b'\\') {
                    let text: String = serde_json::from_slice(&[b"\"", name, b"\""].concat()).ok()?;
                    return Self::known(text.as_bytes());
                }
                Self::known(name)
            }

            fn known(name: &[u8]) -> Option<Self> {
                $(if name == $text.as_bytes() { return Some(Self::$name); })*
                None
            }

            /// Its name on the wire.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

methods! {
    /// Calls a tool.
    ToolsCall = "tools/call",
    /// Lists tools.
    ToolsList = "tools/list",
    /// Lists prompts.
    PromptsList = "prompts/list",
    /// Fills a prompt in.
    PromptsGet = "prompts/get",
    /// Lists resources.
    ResourcesList = "resources/list",
    /// Lists templates of resources.
    TemplatesList = "resources/templates/list",
    /// Reads a resource.
    ResourcesRead = "resources/read",
    /// Wants to be told of changes of a resource (legacy).
    Subscribe = "resources/subscribe",
    /// No longer wants to (legacy).
    Unsubscribe = "resources/unsubscribe",
    /// Completes an argument.
    Complete = "completion/complete",
    /// Says which log messages are wanted (legacy).
    SetLevel = "logging/setLevel",
    /// Is the other side alive (legacy).
    Ping = "ping",
    /// Opens a legacy session.
    Initialize = "initialize",
    /// What a modern server is and can.
    Discover = "server/discover",
    /// Opens a stream of change notifications (modern).
    Listen = "subscriptions/listen",
    /// A server asks the user something.
    Elicit = "elicitation/create",
    /// A server asks the host's model something.
    Sample = "sampling/createMessage",
    /// A server asks for the host's roots.
    Roots = "roots/list",
    /// The host has taken our `initialize` answer.
    Initialized = "notifications/initialized",
    /// The sender no longer wants an answer.
    Cancelled = "notifications/cancelled",
    /// How far a request is.
    Progress = "notifications/progress",
    /// A log message.
    Message = "notifications/message",
    /// The set of tools is another now.
    ToolsChanged = "notifications/tools/list_changed",
    /// The set of prompts is another now.
    PromptsChanged = "notifications/prompts/list_changed",
    /// The set of resources is another now.
    ResourcesChanged = "notifications/resources/list_changed",
    /// A resource is another now.
    Updated = "notifications/resources/updated",
    /// The host's roots are others now (legacy).
    RootsChanged = "notifications/roots/list_changed",
    /// What a URL was opened for is done (legacy).
    ElicitComplete = "notifications/elicitation/complete",
    /// A listen stream is open, and for what.
    Acknowledged = "notifications/subscriptions/acknowledged",
    /// Where a task stands.
    TasksGet = "tasks/get",
    /// Answers what a task asks (modern).
    TasksUpdate = "tasks/update",
    /// Ends a task.
    TasksCancel = "tasks/cancel",
    /// What came of a task (legacy).
    TasksResult = "tasks/result",
    /// Where a task stands now (modern).
    TaskChanged = "notifications/tasks",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_is_known_by_its_text_not_by_its_spelling() {
        assert_eq!(Method::parse(br"tools\/call"), Some(Method::ToolsCall));
        assert_eq!(Method::parse(br"notifications\/progr\u0065ss"), Some(Method::Progress));
        for other in [&br"tools\\/call"[..], br"tools\u0000/call", b"Tools/call", b"", br"\ud800"] {
            assert_eq!(Method::parse(other), None);
        }
    }
}
