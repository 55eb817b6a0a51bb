//! What a certificate request asks for.

use crate::PkiError;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::cri_attributes::ParsedCriAttribute;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer;

const LABEL: &str = "CERTIFICATE REQUEST";

/// A certificate request whose signature proves that who asks has the key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    pub common_name: String,
    pub organizations: Vec<String>,
    pub dns_names: usize,
    pub ip_addresses: usize,
    pub emails: usize,
    pub uris: usize,
    pub parts: Parts,
}

/// The parts as they were written, to be signed as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    pub(crate) subject_der: Vec<u8>,
    pub(crate) public_key_der: Vec<u8>,
    /// The names by which the subject is known beside its own, as the extension holds them.
    pub(crate) alternative_names_der: Option<Vec<u8>>,
}

impl Request {
    pub fn parse(pem: &[u8]) -> Result<Self, PkiError> {
        let block = Pem::iter_from_buffer(pem).next().and_then(Result::ok).filter(|block| block.label == LABEL);
        let block = block.ok_or(PkiError::Request("PEM block type must be CERTIFICATE REQUEST".into()))?;
        let (_, request) = X509CertificationRequest::from_der(&block.contents)
            .map_err(|e| PkiError::Request(format!("malformed certificate request: {e}")))?;
        request.verify_signature().map_err(|e| PkiError::Request(format!("unable to verify certificate request signature: {e}")))?;
        let info = &request.certification_request_info;
        let mut parsed = Self {
            common_name: info.subject.iter_common_name().filter_map(|n| n.as_str().ok()).last().unwrap_or_default().to_string(),
            organizations: info.subject.iter_organization().filter_map(|o| o.as_str().ok()).map(str::to_string).collect(),
            parts: Parts {
                subject_der: info.subject.as_raw().to_vec(),
                public_key_der: info.subject_pki.raw.to_vec(),
                alternative_names_der: None,
            },
            ..Self::default()
        };
        let extensions = info.iter_attributes().filter_map(|attribute| match attribute.parsed_attribute() {
            ParsedCriAttribute::ExtensionRequest(request) => Some(&request.extensions),
            _ => None,
        });
        for extension in extensions.flatten() {
            if let ParsedExtension::SubjectAlternativeName(names) = extension.parsed_extension() {
                names.general_names.iter().for_each(|name| parsed.count(name));
                parsed.parts.alternative_names_der = Some(extension.value.to_vec());
            }
        }
        Ok(parsed)
    }

    fn count(&mut self, name: &GeneralName<'_>) {
        match name {
            GeneralName::DNSName(_) => self.dns_names += 1,
            GeneralName::IPAddress(_) => self.ip_addresses += 1,
            GeneralName::RFC822Name(_) => self.emails += 1,
            GeneralName::URI(_) => self.uris += 1,
            _ => {}
        }
    }
}
